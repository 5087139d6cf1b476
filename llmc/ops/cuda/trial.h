// How variants of an op are timed and tried: on random data, between events, against the simplest way.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/rng.h"
#include "llmc/ops/cuda/runtime.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Numbers as activations have them: power, and with it the clock, depends on the data. They repeat, but out
// of step with rows: the host takes less than a millisecond.
inline void fill_with_normals(void* memory, size_t bytes) {
    std::byte* const p = static_cast<std::byte*>(memory);
    constexpr size_t prime = 10007;
    std::vector<floatX> some(std::min(bytes / sizeof(floatX), prime));
    for (size_t i = 0; i < some.size(); i++) some[i] = floatX(float(normal(1, 1, i)));
    size_t filled = some.size() * sizeof(floatX);
    copy_to_device(p, some.data(), filled);
    for (; filled < bytes; filled *= 2) copy_on_device(p + filled, p, std::min(filled, bytes - filled));
}

// Of one f(), which only launches; once more to warm up.
template <class F> float microseconds(F f, int repeats) {
    cudaEvent_t from, to;
    CUDA_CHECK(cudaEventCreate(&from));
    CUDA_CHECK(cudaEventCreate(&to));
    f();
    CUDA_CHECK(cudaEventRecord(from, cuda_device().compute));
    for (int i = 0; i < repeats; i++) f();
    CUDA_CHECK(cudaEventRecord(to, cuda_device().compute));
    CUDA_CHECK(cudaEventSynchronize(to));
    float milliseconds = 0;
    CUDA_CHECK(cudaEventElapsedTime(&milliseconds, from, to));
    CUDA_CHECK(cudaEventDestroy(from));
    CUDA_CHECK(cudaEventDestroy(to));
    return milliseconds * 1000 / float(repeats);
}

using Wide = std::vector<double>;

template <class T> Wide wide(const T* on_device, size_t count) {
    std::vector<T> values(count);
    copy_to_host(values.data(), on_device, count * sizeof(T));
    Wide all(count);
    for (size_t i = 0; i < count; i++) all[i] = double(values[i]);
    return all;
}

// |values - simple| / |simple|
inline double apart(const Wide& values, const Wide& simple) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < values.size(); i++) {
        const double d = values[i] - simple[i];
        difference += d * d, size += simple[i] * simple[i];
    }
    return difference == 0 ? 0 : std::sqrt(difference / size);
}

// Collects what is wrong, of all that is tried.
struct Trial {
    std::string wrong;

    // what: a kernel and its sizes; off: apart(), of which rounding explains `most`
    void expect(const std::string& what, const char* tensor, double off, double most) {
        if (!(off <= most))
            wrong += strf("%s%s, %s: off by %.2g, expected less than %g", wrong.empty() ? "" : "; ",
                          what.c_str(), tensor, off, most);
    }
    void end() const {
        CHECK(wrong.empty(), "on this GPU kernels give other results than the simplest way does: %s. Please "
              "report it with dev/results of scripts/gpu_check.sh", wrong.c_str());
    }
};

}  // namespace cuda
}  // namespace PRECISION
