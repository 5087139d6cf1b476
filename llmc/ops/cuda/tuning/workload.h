// A workload runs a task on random tensors: tuning.cu times the candidates, and compares their results with
// those of the simplest kernels.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/guard/progress_page.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/ops/cuda/tuning/choices.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

// A result: `columns` columns of `rows` rows, `stride` elements apart, as computed by a candidate and by the
// simplest kernels.
struct Comparison {
    const char* tensor;
    const void *values, *expected;
    DType type;
    size_t rows, columns, stride;
    double tolerance;           // of |values - expected| / |expected|: the most that rounding explains
};

struct Workload {
    size_t bytes = 0;                           // of all tensors
    std::function<void()> fill;                 // sets the inputs
    std::function<void(const Candidate& candidate)> run;
    std::function<void()> run_simplest;         // into the expected tensors
    std::vector<Comparison> comparisons;

    // Points `tensor` at the next `count` elements of memory. memory null: only counts the bytes.
    template <class T> void take(void* memory, T*& tensor, size_t count) {
        tensor = reinterpret_cast<T*>(static_cast<std::byte*>(memory) + bytes);
        bytes += scratch_size(count * sizeof(T));
    }
};

// In order of preference; empty: the op has one kernel (attention in FP32, or with heads of a size without
// variants).
std::vector<Candidate> product_candidates(const Task& task);
std::vector<Candidate> attention_candidates(const Task& task);
// All names that candidates may have.
std::string product_kernels();
std::string attention_kernels();
// A workload in `memory`. compares: with the expected tensors and run_simplest, which timing does not need.
Workload product_workload(const Task& task, void* memory, bool compares);
Workload attention_workload(const Task& task, void* memory, bool compares);

// tuning.cu, for dev/cuda_bench.cpp and tests
std::vector<Task> tasks_of(const Walk& walk);      // of a training step
std::vector<Candidate> candidates_of(const Task& task);
struct Timing {
    Candidate candidate;
    float microseconds;                         // mean of `repeats` runs, after a run to warm up
};
std::vector<Timing> time_candidates(const Task& task, void* memory, int repeats,
                                    const std::function<void()>& progress = beat);
// The results of a candidate that differ from the simplest kernels', for a message; empty: all agree.
std::string differences(const Task& task, const Candidate& candidate, void* memory);
size_t workload_bytes(const Task& task);        // of the memory for time_candidates() and differences()

// Normal random numbers, as activations are: a GPU's power depends on the data, and its clock on the power.
// The numbers repeat every 10,007 elements, out of step with rows.
template <class T> void fill_with_normals(T* tensor, size_t count, float deviation = 1, float mean = 0) {
    std::vector<T> some(std::min(count, size_t(10007)));
    for (size_t i = 0; i < some.size(); i++) some[i] = T(mean + deviation * float(normal(1, 1, i)));
    copy_to_device(tensor, some.data(), some.size() * sizeof(T));
    for (size_t filled = some.size(); filled < count; filled *= 2)
        copy_on_device(tensor + filled, tensor, std::min(filled, count - filled) * sizeof(T));
}

}  // namespace cuda
}  // namespace PRECISION
