// Activations on packs of values: for kernels of their own, and for what follows a product in its kernel.
// Both compute the same bits.
#pragma once
#include "llmc/ops/cuda/elementwise.h"

namespace PRECISION {
namespace cuda {

struct Math {
    static __device__ __forceinline__ float exp(float x) { return exp2f(kLog2e * x); }
    static __device__ __forceinline__ float exp_negative(float x) { return exp2f(kLog2e * x); }
    static __device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
};

// Functions for of_packs(): f(x), and its gradient given dact.
template <class F> struct ActForward {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float of(float x, float) { return F::of(x); }
};
template <class F> struct ActBackward {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float of(float dact, float x) { return dact * F::tangent(x).slope; }
};

// f(gate) up
template <class F> static __device__ __forceinline__ Pack gated(const Pack& gate, const Pack& up) {
    Pack act;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) act[k] = floatX(F::of(float(gate[k])) * float(up[k]));
    return act;
}

// Gradients of gate and up.
struct GatedPacks { Pack gate, up; };
template <class F>
static __device__ __forceinline__ GatedPacks gated_backward(const Pack& dact, const GatedPacks& pre) {
    GatedPacks d;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) {
        const Tangent<float> f = F::tangent(float(pre.gate[k]));
        d.gate[k] = floatX(float(dact[k]) * float(pre.up[k]) * f.slope);
        d.up[k] = floatX(float(dact[k]) * f.value);
    }
    return d;
}

}  // namespace cuda
}  // namespace PRECISION
