// Which of the optimizer's state is rounded stochastically: points of tests.
#pragma once
#include <vector>

#include "llmc/base/config/config.h"

namespace PRECISION {

enum class Rounded : uint8_t { Nothing, Moments, Weights, Both };

// Without masters weights are bf16.
inline std::vector<Rounded> rounded_kinds() {
    if (sizeof(floatX) != 2) return {Rounded::Moments};
    return {Rounded::Moments, Rounded::Weights, Rounded::Both};
}
inline constexpr Rounded kMostRounded = sizeof(floatX) == 2 ? Rounded::Both : Rounded::Moments;

inline const char* name_of(Rounded r) {
    const char* const names[] = {"", ", moments in bf16", ", no masters", ", no masters, moments in bf16"};
    return names[size_t(r)];
}

inline void round_state(OptimizerConfig& o, Rounded r) {
    if (r == Rounded::Moments || r == Rounded::Both) o.state = StateDtype::Bf16;
    o.master = r == Rounded::Nothing || r == Rounded::Moments;
}

}  // namespace PRECISION
