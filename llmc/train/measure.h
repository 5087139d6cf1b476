// What this machine can do, and what this process takes.
#pragma once
#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/comm/axis.h"

// Memory beyond what was held at construction: the part that the plan accounts for. Ranks that are threads of
// one process share what it takes evenly; all ranks construct it together.
struct PeakMemory {
    size_t baseline;
    explicit PeakMemory(const Axis& ranks = {}) {
        ranks.barrier();        // what was needed before is given back everywhere
        reset_peak_resident();
        baseline = resident_bytes();
        ranks.barrier();        // and nobody goes on yet
    }
    size_t peak() const { return (peak_resident_bytes() - baseline) / size_t(context.process_ranks); }
};

namespace PRECISION {

// Rate of a (1024, 1024, 1024) matmul in this precision, best of a few, in 10^12 FLOP/s. Takes memory and
// gives it back.
double matmul_tflops();

// The rate that mfu is a share of, summed over the ranks: a CPU's is measured, a GPU's is what its maker
// states. 0: one of them is unknown.
double peak_tflops(const Axis& ranks);

}  // namespace PRECISION
