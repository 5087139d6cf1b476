#include "llmc/ops/cpu/products/activate.h"

#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/base/numbers/math.h"
#include "llmc/base/numbers/simd.h"

namespace PRECISION {
namespace cpu {

static constexpr int kValues = 64;

struct alignas(64) Values { real v[kValues]; };

static void read(Values& to, const floatX* from, int n) {
    if (n == kValues)
        for (int k = 0; k < kValues; k += simd::width<real>) simd::store(to.v + k, simd::load(from + k));
    else
        for (int k = 0; k < kValues; k++) to.v[k] = k < n ? real(from[k]) : real(0);
}
static void write(floatX* to, const Values& from, int n) {
    if (n == kValues)
        for (int k = 0; k < kValues; k += simd::width<real>) simd::store(to + k, simd::load(from.v + k));
    else
        for (int k = 0; k < n; k++) to[k] = floatX(from.v[k]);
}

// block(i, n) for each kValues of `count` values, the first of them i; the last block may have n < kValues.
template <class Block> [[gnu::always_inline]] inline void in_blocks(size_t count, Block block) {
    for (size_t i = 0; i < count; i += kValues) block(i, int(std::min(count - i, size_t(kValues))));
}

// ---------------------------------------------------------------------------------------------------------
// of one feature: f(x) of x = pre, f'(x)

struct Gelu {
    [[gnu::always_inline]] static real of(real x) { return simd::gelu(x); }
    [[gnu::always_inline]] static real slope(real x) { return simd::gelu_grad(x); }
};
struct Relu2 {
    [[gnu::always_inline]] static real of(real x) { return x > 0 ? x * x : x * 0; }      // NaN passes
    [[gnu::always_inline]] static real slope(real x) { return x > 0 ? 2 * x : x * 0; }
};

template <class F> [[gnu::noinline]] static void forward(floatX* act, const floatX* pre, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values x, y;
        read(x, pre + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++) y.v[k] = F::of(x.v[k]);
        write(act + i, y, n);
    });
}

template <class F>
[[gnu::noinline]] static void backward(floatX* dpre, const real* dact, const floatX* pre, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values x, dx;
        read(x, pre + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++) dx.v[k] = F::slope(x.v[k]);
        for (int k = 0; k < n; k++) dx.v[k] *= dact[i + k];
        write(dpre + i, dx, n);
    });
}

// ---------------------------------------------------------------------------------------------------------
// SwiGLU: s = 1 / (1 + exp(-g)), act = g s u;  du = dact g s,  dg = dact u s (1 + g (1 - s))

[[gnu::noinline]] static void swiglu(floatX* act, const floatX* gate, const floatX* up, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values g, u, y;
        read(g, gate + i, n), read(u, up + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++) y.v[k] = g.v[k] / (1 + simd::vexp(-g.v[k])) * u.v[k];
        write(act + i, y, n);
    });
}

// s and 1 - s from t = exp(-|g|), which neither overflows nor cancels. Beyond 80 the gate is open or shut to
// the last bit.
[[gnu::noinline]] static void swiglu_backward(floatX* dgate, floatX* dup, const real* dact,
                                              const floatX* gate, const floatX* up, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values g, u, silu, slope;
        read(g, gate + i, n), read(u, up + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++) {
            const real x = g.v[k];
            const real t = simd::vexp_negative(-std::fabs(x)), r = 1 / (1 + t);
            const real s = x < 0 ? t * r : r, rest = x < 0 ? r : t * r;
            silu.v[k] = x * s, slope.v[k] = s + (x * s) * rest;
        }
        for (int k = 0; k < n; k++) silu.v[k] *= dact[i + k], slope.v[k] *= dact[i + k] * u.v[k];
        write(dgate + i, slope, n), write(dup + i, silu, n);
    });
}

// ---------------------------------------------------------------------------------------------------------

void activate(floatX* act, const floatX* pre, Activation f, size_t count, int F) {
    switch (f) {
        case Activation::Gelu: return forward<Gelu>(act, pre, count);
        case Activation::Relu2: return forward<Relu2>(act, pre, count);
        case Activation::Swiglu: return swiglu(act, pre, pre + F, count);
    }
}

void activate_backward(floatX* dpre, const real* dact, const floatX* pre, Activation f, size_t count, int F) {
    switch (f) {
        case Activation::Gelu: return backward<Gelu>(dpre, dact, pre, count);
        case Activation::Relu2: return backward<Relu2>(dpre, dact, pre, count);
        case Activation::Swiglu: return swiglu_backward(dpre, dpre + F, dact, pre, pre + F, count);
    }
}

void activation_forward(floatX* act, const floatX* pre, Activation f, int N, int F) {
    if (walked(activation_forward_cost, f, N, F)) return;
    const size_t P = size_t(pre_width(f, F));
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) activate(act + size_t(n) * size_t(F), pre + size_t(n) * P, f, size_t(F), F);
}

}  // namespace cpu
}  // namespace PRECISION
