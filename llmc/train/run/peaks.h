// The machine's matmul rate, and this process's peak memory.
#pragma once
#include <algorithm>

#include "llmc/base/config/config.h"
#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/comm/votes.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline runs {

// Memory beyond the amount at construction, to compare with the plan. Ranks of a process share the amount
// evenly. Two kinds of pages that processes share are left out: code read from its file meanwhile, which the
// system drops at will, and MPI's segments between processes. Construction is collective.
struct PeakMemory {
    const Axis& ranks;
    size_t baseline, shared;
    explicit PeakMemory(const Axis& all) : ranks(all) {
        ranks.barrier();        // every rank has freed its earlier memory
        reset_peak_resident();
        baseline = ops::device_in_use();
        shared = resident_shared_bytes();
        ranks.barrier();        // and no rank allocates yet
    }
    // On a GPU the memory in use now: tensors stay until the end.
    size_t peak() const {
        const bool on_host = ops::reached_by_host();
        const size_t most = on_host ? peak_resident_bytes() : ops::device_in_use();
        const size_t more = on_host ? std::max(resident_shared_bytes(), shared) - shared : 0;
        return (most - std::min(most, baseline + more)) / size_t(context.memory_ranks);
    }
    // Of the fullest rank. All ranks together.
    size_t largest() const { return size_t(largest_over(ranks, double(peak()))); }
};

// Rate of a (1024, 1024, 1024) matmul in this precision, best of a few, in 10^12 FLOP/s. Allocates and frees
// memory.
double matmul_tflops();

// found, or the best of earlier runs with equal precision and threads, from the user's cache.
double best_tflops(double found);

// The matmul rate behind mfu, in TFLOP/s, summed over the ranks. A rank's rate is log.peak_tflops if set,
// else on a CPU the best rate of this user's runs, on a GPU the maker's figure. 0: a rank has no known rate.
double peak_tflops(const Axis& ranks, const LogConfig& log);

}  // namespace PRECISION::runs
