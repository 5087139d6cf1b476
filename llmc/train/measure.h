// What this machine can do, and what this process takes.
#pragma once
#include "llmc/base/machine.h"

// Memory beyond what was held at construction: the part that the plan accounts for.
struct PeakMemory {
    size_t baseline;
    PeakMemory() {
        reset_peak_resident();
        baseline = resident_bytes();
    }
    size_t peak() const { return peak_resident_bytes() - baseline; }
};

namespace PRECISION {

// Rate of a (1024, 1024, 1024) matmul in this precision, best of a few, in 10^12 FLOP/s. Takes memory and
// gives it back.
double matmul_tflops();

}  // namespace PRECISION
