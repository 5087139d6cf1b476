// How variants of an op are timed and tried: on random data, between events, against the simplest way.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "llmc/base/rng.h"
#include "llmc/ops/cuda/runtime.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// Numbers as activations have them: power, and with it the clock, depends on the data.
inline void fill_with_normals(void* memory, size_t bytes) {
    std::byte* const p = static_cast<std::byte*>(memory);
    std::vector<floatX> some(std::min(bytes, size_t(1) << 20) / sizeof(floatX));
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

// |values - simple| / |simple|, of `count` elements on the device
template <class T> double apart(const T* values, const T* simple, size_t count) {
    std::vector<T> a(count), b(count);
    copy_to_host(a.data(), values, count * sizeof(T));
    copy_to_host(b.data(), simple, count * sizeof(T));
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        const double y = double(b[i]), d = double(a[i]) - y;
        difference += d * d, size += y * y;
    }
    return difference == 0 ? 0 : std::sqrt(difference / size);
}

}  // namespace cuda
}  // namespace PRECISION
