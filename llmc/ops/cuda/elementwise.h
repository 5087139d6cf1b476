// Elementwise kernels: each thread computes one 16-byte pack, the last thread the rest. F::of(a, b) is the
// function in float, F::inputs its number of arguments (1 or 2).
#pragma once
#include "llmc/base/check.h"
#include "llmc/ops/cuda/kernel.h"

namespace PRECISION {
namespace cuda {

static constexpr int kElementwiseThreads = 256;

template <class F> __device__ __forceinline__ Pack of_packs(const Pack& a, const Pack& b) {
    Pack out;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) out[k] = floatX(F::of(float(a[k]), float(b[k])));
    return out;
}

// out[i] = F::of(a[i], b[i]); out may be a or b. A function of one argument has b = a, and is read once.
// FLOOR bytes = (inputs + 1) count sizeof(floatX)
template <class F>
__global__ void __launch_bounds__(kElementwiseThreads)
elementwise_kernel(floatX* out, const floatX* a, const floatX* b, size_t count) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i + Pack::size <= count) {
        const Pack x = Pack::load_streaming(a + i), y = F::inputs == 2 ? Pack::load_streaming(b + i) : x;
        of_packs<F>(x, y).store(out + i);
        return;
    }
    for (size_t k = i; k < count; k++) out[k] = floatX(F::of(float(a[k]), float(b[k])));
}

template <class F> void elementwise(floatX* out, const floatX* a, const floatX* b, size_t count) {
    CHECK((uintptr_t(out) | uintptr_t(a) | uintptr_t(b)) % 16 == 0, "elementwise: not aligned to 16 bytes");
    const size_t packs = div_up(count, Pack::size);
    launch(elementwise_kernel<F>, dim3(unsigned(div_up(packs, kElementwiseThreads))),
           dim3(kElementwiseThreads), 0, {.bytes = (F::inputs + 1.) * double(count) * sizeof(floatX)}, out, a,
           b, count);
}

}  // namespace cuda
}  // namespace PRECISION
