// Which of the optimizer's state is rounded stochastically: points of tests.
#pragma once
#include "llmc/base/config/config.h"

namespace PRECISION {

enum class Rounded : uint8_t { Nothing, Moments };

inline const char* name_of(Rounded r) { return r == Rounded::Nothing ? "" : ", moments in bf16"; }

inline void round_state(OptimizerConfig& o, Rounded r) {
    if (r == Rounded::Moments) o.state = StateDtype::Bf16;
}

}  // namespace PRECISION
