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
template <class F, bool kAmaxes = false>
__global__ void __launch_bounds__(kElementwiseThreads)
elementwise_kernel(floatX* out, const floatX* a, const floatX* b, size_t count, float* amaxes) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    Amax most;
    if (i + Pack::size <= count) {
        const Pack x = Pack::load_streaming(a + i), y = F::inputs == 2 ? Pack::load_streaming(b + i) : x;
        const Pack z = of_packs<F>(x, y);
        z.store(out + i);
        if constexpr (!kAmaxes) return;
        most.see(z);
    } else {
        for (size_t k = i; k < count; k++) {
            const floatX z = floatX(F::of(float(a[k]), float(b[k])));
            out[k] = z;
            most.see(float(z));
        }
    }
    if constexpr (kAmaxes) raise_amax_of_block(amaxes, most);
}

// amaxes (kFp8Parts), or null: of out.
template <class F, bool kAmaxes = false>
void elementwise(floatX* out, const floatX* a, const floatX* b, size_t count, float* amaxes = nullptr) {
    CHECK((uintptr_t(out) | uintptr_t(a) | uintptr_t(b)) % 16 == 0, "elementwise: not aligned to 16 bytes");
    const unsigned blocks = unsigned(div_up(div_up(count, Pack::size), kElementwiseThreads));
    clear_amaxes(amaxes);
    launch(elementwise_kernel<F, kAmaxes>, dim3(blocks), dim3(kElementwiseThreads), 0,
           {.bytes = (F::inputs + 1.) * double(count) * sizeof(floatX)}, out, a, b, count, amaxes);
}

}  // namespace cuda
}  // namespace PRECISION
