// One clock for all ranks: the clock of a host begins at boot, so a rank estimates the offset from rank 0's.
#pragma once
#include <functional>

#include "llmc/base/progress.h"
#include "llmc/comm/axis.h"

inline namespace comm {

// A rank's clock minus rank 0's is offset +- error, in seconds.
struct ClockOffset { double offset = 0, error = 0; };

// Estimates the offset by a few small all-gathers. A rank leaves each after every rank has entered: entries
// and exits bound the offset from both sides. If the bounds contain 0, the ranks share one clock and the
// offset is 0. All ranks together.
ClockOffset clock_offset(const Axis& world, const std::function<double()>& clock = seconds_now);

}  // namespace comm
