// gelu(x) = x/2 (1 + tanh(u)) = x / (1 + exp(-2u)),   u = sqrt(2/pi) (x + 0.044715 x^3)
// With s = 1 / (1 + exp(-2u)):   gelu'(x) = s + x s (1 - s) 2u'
// relu2(x) = max(x, 0)^2
// swiglu(g, u) = g s u,  s = 1 / (1 + exp(-g)):   by u: g s,  by g: u s (1 + g (1 - s))
#include "llmc/ops/cuda/products/activation.h"

#include "llmc/ops/cuda/elementwise.h"

namespace PRECISION {
namespace cuda {

static constexpr float kTwoU = 1.5957691216057307f,
                       kTwoU3 = 0.07135481627260025f;  // 2u = x (kTwoU + kTwoU3 x^2)

struct Gelu {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float of(float x, float) {
        const float e = exp2f(-kLog2e * (x * (kTwoU + kTwoU3 * (x * x))));
        return __fdividef(x, 1 + e);
    }
};

// Beyond |x| = 30 the derivative is 0 or 1 to the last bit, and u would overflow further out. s (1 - s) from
// t = exp(-2 |u|) as t / (1 + t)^2, which cancels nothing. NaN passes.
struct GeluBackward {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float of(float dact, float pre) {
        const float x = pre > 30 ? 30 : pre < -30 ? -30 : pre, z = x * x;
        const float two_u = x * (kTwoU + kTwoU3 * z), two_du = kTwoU + 3 * kTwoU3 * z;
        const float t = exp2f(-kLog2e * fabsf(two_u)), r = __fdividef(1, 1 + t);
        const float s = two_u < 0 ? t * r : r;
        return dact * (s + x * two_du * (t * r * r));
    }
};

// x * 0, not 0: NaN passes.
struct Relu2 {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float of(float x, float) { return x > 0 ? x * x : x * 0; }
};
struct Relu2Backward {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float of(float dact, float x) {
        return x > 0 ? dact * (2 * x) : dact * (x * 0);
    }
};

// ---------------------------------------------------------------------------------------------------------
// SwiGLU: rows of pre and dpre are (gate, up), 2F wide. A thread takes a pack of features of one row.

// FLOOR bytes = 3 N F sizeof(floatX)
__global__ void __launch_bounds__(kElementwiseThreads)
swiglu_kernel(floatX* act, const floatX* pre, size_t count, int F) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i >= count) return;
    const floatX* row = pre + i / F * 2 * F + i % F;
    const Pack g = Pack::load_streaming(row), u = Pack::load_streaming(row + F);
    Pack y;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) {
        const float x = float(g[k]);
        y[k] = floatX(__fdividef(x, 1 + exp2f(-kLog2e * x)) * float(u[k]));
    }
    y.store(act + i);
}

// s and 1 - s from t = exp(-|g|), which neither overflows nor cancels.
// FLOOR bytes = 5 N F sizeof(floatX)
__global__ void __launch_bounds__(kElementwiseThreads)
swiglu_backward_kernel(floatX* dpre, const floatX* dact, const floatX* pre, size_t count, int F) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i >= count) return;
    const size_t at = i / F * 2 * F + i % F;
    const Pack d = Pack::load_streaming(dact + i), g = Pack::load_streaming(pre + at),
               u = Pack::load_streaming(pre + at + F);
    Pack dg, du;
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) {
        const float x = float(g[k]), dy = float(d[k]);
        const float t = exp2f(-kLog2e * fabsf(x)), r = __fdividef(1, 1 + t);
        const float s = x < 0 ? t * r : r, rest = x < 0 ? r : t * r, silu = x * s;
        dg[k] = floatX(dy * float(u[k]) * (s + silu * rest));
        du[k] = floatX(dy * silu);
    }
    dg.store_global(dpre + at), du.store_global(dpre + at + F);
}

static dim3 blocks_of_packs(size_t count) {
    return dim3(unsigned(div_up(count / Pack::size, kElementwiseThreads)));
}

// ---------------------------------------------------------------------------------------------------------

void activation_forward(floatX* act, const floatX* pre, Activation f, int N, int F) {
    if (walked(activation_forward_cost, f, N, F)) return;
    const size_t count = size_t(N) * size_t(F);
    switch (f) {
        case Activation::Gelu: return elementwise<Gelu>(act, pre, pre, count);
        case Activation::Relu2: return elementwise<Relu2>(act, pre, pre, count);
        case Activation::Swiglu:
            check_packs("swiglu: F", F);
            return launch(swiglu_kernel, blocks_of_packs(count), dim3(kElementwiseThreads), 0,
                          {.bytes = 3. * double(count) * sizeof(floatX)}, act, pre, count, F);
    }
}

void activation_backward(floatX* dpre, const floatX* dact, const floatX* pre, Activation f, int N, int F) {
    const size_t count = size_t(N) * size_t(F);
    switch (f) {
        case Activation::Gelu: return elementwise<GeluBackward>(dpre, dact, pre, count);
        case Activation::Relu2: return elementwise<Relu2Backward>(dpre, dact, pre, count);
        case Activation::Swiglu:
            check_packs("swiglu: F", F);
            return launch(swiglu_backward_kernel, blocks_of_packs(count), dim3(kElementwiseThreads), 0,
                          {.bytes = 5. * double(count) * sizeof(floatX)}, dpre, dact, pre, count, F);
    }
}

// ---------------------------------------------------------------------------------------------------------
// with a bias: what an epilogue of cuBLASLt does, where it is not the faster

// FLOOR bytes = (act ? 3 : 2) N OC sizeof(floatX) + OC sizeof(floatX)
template <bool WithGelu>
__global__ void __launch_bounds__(kElementwiseThreads)
add_bias_kernel(floatX* act, floatX* pre, const floatX* bias, size_t count, int OC) {
    const size_t i = (size_t(blockIdx.x) * kElementwiseThreads + threadIdx.x) * Pack::size;
    if (i >= count) return;
    Pack x = Pack::load_streaming(pre + i);
    const Pack b = Pack::load_cached(bias + i % OC);
    #pragma unroll
    for (int k = 0; k < Pack::size; k++) x[k] = floatX(float(x[k]) + float(b[k]));
    x.store(pre + i);
    if constexpr (WithGelu) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) x[k] = floatX(Gelu::of(float(x[k]), 0));
        x.store(act + i);
    }
}

template <bool WithGelu>
static void launch_add_bias(floatX* act, floatX* pre, const floatX* bias, int N, int OC) {
    check_packs("bias: OC", OC);
    const size_t count = size_t(N) * OC, packs = count / Pack::size;
    launch(add_bias_kernel<WithGelu>, dim3(unsigned(div_up(packs, kElementwiseThreads))),
           dim3(kElementwiseThreads), 0,
           {.bytes = ((WithGelu ? 3. : 2.) * double(count) + OC) * sizeof(floatX)}, act, pre, bias, count,
           OC);
}

void add_bias(floatX* out, const floatX* bias, int N, int OC) {
    launch_add_bias<false>(nullptr, out, bias, N, OC);
}
void add_bias_gelu(floatX* act, floatX* pre, const floatX* bias, int N, int OC) {
    launch_add_bias<true>(act, pre, bias, N, OC);
}

}  // namespace cuda
}  // namespace PRECISION
