// What this machine can do, and what this process takes.
#pragma once
#include <algorithm>

#include "llmc/base/config/config.h"
#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/comm/axis.h"
#include "llmc/ops/ops.h"

namespace PRECISION {

// Memory beyond what was held at construction: the part that the plan accounts for. Ranks of one process that
// have one memory share what is taken evenly; all ranks construct it together.
struct PeakMemory {
    size_t baseline;
    explicit PeakMemory(const Axis& ranks = {}) {
        ranks.barrier();        // what was needed before is given back everywhere
        reset_peak_resident();
        baseline = ops::device_in_use();
        ranks.barrier();        // and nobody goes on yet
    }
    // Of a GPU what is in use now: tensors stay until the end.
    size_t peak() const {
        const size_t most = ops::reached_by_host() ? peak_resident_bytes() : ops::device_in_use();
        return (most - std::min(most, baseline)) / size_t(context.memory_ranks);
    }
};

// Rate of a (1024, 1024, 1024) matmul in this precision, best of a few, in 10^12 FLOP/s. Takes memory and
// gives it back.
double matmul_tflops();

// The matmul rate that mfu is a share of, summed over the ranks: log.peak_tflops for each rank where that is
// set. Else a CPU's is measured, a GPU's is what its maker states. 0: one of them is unknown.
double peak_tflops(const Axis& ranks, const LogConfig& log);

}  // namespace PRECISION
