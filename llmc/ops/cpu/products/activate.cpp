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

template <class F, bool kGate>
[[gnu::noinline]] static void forward(floatX* act, const floatX* pre, const floatX* up, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values x, u, y;
        read(x, pre + i, n);
        if constexpr (kGate) read(u, up + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++)
            if constexpr (kGate) y.v[k] = F::of(x.v[k]) * u.v[k];
            else y.v[k] = F::of(x.v[k]);
        write(act + i, y, n);
    });
}

template <class F, bool kGate>
[[gnu::noinline]] static void backward(floatX* dpre, floatX* dup, const real* dact, const floatX* pre,
                                       const floatX* up, size_t count) {
    in_blocks(count, [=](size_t i, int n) {
        Values x, u, value, slope;
        read(x, pre + i, n);
        if constexpr (kGate) read(u, up + i, n);
        #pragma omp simd
        for (int k = 0; k < kValues; k++) {
            const auto tangent = F::tangent(x.v[k]);
            slope.v[k] = tangent.slope;
            if constexpr (kGate) value.v[k] = tangent.value;
        }
        for (int k = 0; k < n; k++) {
            slope.v[k] *= kGate ? dact[i + k] * u.v[k] : dact[i + k];
            if constexpr (kGate) value.v[k] *= dact[i + k];
        }
        write(dpre + i, slope, n);
        if constexpr (kGate) write(dup + i, value, n);
    });
}

void activate(floatX* act, const floatX* pre, Activation f, size_t count, int F) {
    with_formula<simd::Math>(f, [&](auto formula, auto gate) {
        forward<decltype(formula), gate>(act, pre, pre + F, count);
    });
}

void activate_backward(floatX* dpre, const real* dact, const floatX* pre, Activation f, size_t count, int F) {
    with_formula<simd::Math>(f, [&](auto formula, auto gate) {
        backward<decltype(formula), gate>(dpre, dpre + F, dact, pre, pre + F, count);
    });
}

void activation_forward(floatX* act, const floatX* pre, Activation f, int N, int F, float* amaxes) {
    if (walked(activation_forward_cost, f, N, F, amaxes != nullptr)) return;
    const size_t P = size_t(pre_width(f, F));
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) activate(act + size_t(n) * size_t(F), pre + size_t(n) * P, f, size_t(F), F);
    const Unrecorded pass;
    if (amaxes) largest(amaxes, act, size_t(N) * size_t(F));
}

void activation_backward(floatX* dpre, const floatX* dact, const floatX* pre, Activation f, int N, int F,
                         float* amaxes) {
    if (walked(activation_backward_cost, f, N, F, amaxes != nullptr)) return;
    constexpr int kRun = 8 * kValues;       // features whose gradients wait as `real`
    const size_t P = size_t(pre_width(f, F));
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) {
        const floatX* from = dact + size_t(n) * size_t(F);
        for (int j = 0; j < F; j += kRun) {
            const int width = std::min(kRun, F - j);
            const size_t at = size_t(n) * P + size_t(j);
            real run[kRun];
            for (int k = 0; k < width; k++) run[k] = real(from[j + k]);
            activate_backward(dpre + at, run, pre + at, f, size_t(width), F);
        }
    }
    const Unrecorded pass;
    if (amaxes) largest(amaxes, dpre, size_t(N) * P);
}

}  // namespace cpu
}  // namespace PRECISION
