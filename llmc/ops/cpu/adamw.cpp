// Memory-bound: the update reads gradient, moments and masters once and writes them once. Threads take
// grains of a run; each result depends on one element alone.
#include <algorithm>
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/ops/cpu/rounding.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

void sum_of_squares(real* sums, const real* grad, size_t count) {
    if (walked(sum_of_squares_cost, count)) return;
    const int64_t blocks = int64_t((count + kNormBlock - 1) / kNormBlock);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int64_t b = 0; b < blocks; b++) {
        const real* g = grad + size_t(b) * kNormBlock;
        const int n = int(std::min(kNormBlock, count - size_t(b) * kNormBlock));
        sums[b] = sum<real>(n, [&](int i, int left) { const auto v = load(g + i, left); return v * v; });
    }
}

void gradient_state(GradientState* state, const double* squares, const double* loss, real clip) {
    if (walked(gradient_state_cost)) return;
    const double norm = std::sqrt(*squares);
    state->norm = real(norm);
    state->scale = clip > 0 && norm > double(clip) ? real(double(clip) / norm) : real(1);
    state->finite = std::isfinite(norm) && std::isfinite(*loss);
}

static constexpr size_t kGrain = 1 << 14;      // elements of a grain of a thread's work

// Constants of a run.
struct Coefficients { real scale, beta1, beta2, step_size, inverse_bias2, eps, decay; };

static Coefficients coefficients(const Adamw& a, const AdamwTensor& t) {
    const double steps = double(a.step);
    const double bias1 = 1 - std::pow(double(a.beta1), steps), bias2 = 1 - std::pow(double(a.beta2), steps);
    return {.scale = a.state->scale, .beta1 = a.beta1, .beta2 = a.beta2,
            .step_size = real(t.lr / bias1), .inverse_bias2 = real(1 / bias2), .eps = a.eps,
            .decay = t.lr * t.decay};
}

template <bool kCautious>
static void update(real* __restrict master, real* __restrict m, real* __restrict v,
                   const real* __restrict grad, size_t count, const Coefficients& k) {
    const Coefficients c = k;
    #pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const real g = grad[i] * c.scale;
        m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
        v[i] = c.beta2 * v[i] + (1 - c.beta2) * (g * g);
        const real u = c.step_size * m[i] / (std::sqrt(v[i] * c.inverse_bias2) + c.eps);
        const real decay = kCautious && u * master[i] < 0 ? real(0) : c.decay;
        master[i] -= u + decay * master[i];
    }
}

// The key of a run's element, and how many elements from there on have keys that follow.
static uint64_t key_of(const AdamwTensor& t, size_t i) {
    return t.global + i / t.cols * t.stride + i % t.cols;
}
static size_t in_sequence(const AdamwTensor& t, size_t i) { return t.cols - i % t.cols; }

// Elements first .. first + count of a tensor.
static void round_grain(const Adamw& a, const AdamwTensor& t, size_t first, size_t count) {
    floatX* param = a.param + t.start;
    const real* master = a.master + t.start;
    if (!a.stochastic) {
        for (size_t i = first; i < first + count; i++) param[i] = floatX(master[i]);
        return;
    }
    for (size_t i = first, n; i < first + count; i += n) {
        n = std::min(in_sequence(t, i), first + count - i);
        round_run(param + i, master + i, n, key_of(t, i), a.seed, a.step);
    }
}

using Update = void(real*, real*, real*, const real*, size_t, const Coefficients&);

template <class T> static real* widened(real* copy, const T* stored, size_t count) {
    std::copy_n(stored, count, copy);
    return copy;
}

// Of what lies in bf16 a copy in full precision is updated, and rounded.
static void update_rounded(const Adamw& a, const AdamwTensor& t, size_t first, size_t count,
                           const Coefficients& c, Update* update_all) {
    constexpr size_t kCopied = 1024;
    real w[kCopied], m[kCopied], v[kCopied];
    const bool in_bf16 = a.moments != dtype_of<real>;
    for (size_t i = first, n; i < first + count; i += n) {
        n = std::min({kCopied, in_sequence(t, i), first + count - i});
        const size_t at = t.start + i;
        bfloat16 *const stored_m = static_cast<bfloat16*>(a.m) + at,
                 *const stored_v = static_cast<bfloat16*>(a.v) + at;
        update_all(a.master ? a.master + at : widened(w, a.param + at, n),
                   in_bf16 ? widened(m, stored_m, n) : static_cast<real*>(a.m) + at,
                   in_bf16 ? widened(v, stored_v, n) : static_cast<real*>(a.v) + at, a.grad + at, n, c);
        if (in_bf16) round_moments(stored_m, stored_v, m, v, n, key_of(t, i), a.seed, a.step);
        if (!a.master) round_run(a.param + at, w, n, key_of(t, i), a.seed, a.step);
    }
}

void adamw_update(const Adamw& a, const AdamwTensor* tensors, size_t count) {
    if (walked(adamw_update_cost, a, tensors, count)) return;
    if (!a.state->finite) return;
    const bool rounded = a.moments != dtype_of<real> || !a.master;
    real *const m = static_cast<real*>(a.m), *const v = static_cast<real*>(a.v);
    #pragma omp parallel num_threads(context.threads)
    for (size_t t = 0; t < count; t++) {
        const AdamwTensor& run = tensors[t];
        const Coefficients c = coefficients(a, run);
        const auto update_all = a.cautious ? update<true> : update<false>;
        const int64_t grains = int64_t((run.count + kGrain - 1) / kGrain);
        #pragma omp for schedule(static) nowait
        for (int64_t g = 0; g < grains; g++) {
            const size_t from = size_t(g) * kGrain, at = run.start + from,
                         n = std::min(kGrain, run.count - from);
            if (rounded) update_rounded(a, run, from, n, c, update_all);
            else update_all(a.master + at, m + at, v + at, a.grad + at, n, c);
            if (a.param && a.master) round_grain(a, run, from, n);
        }
    }
}

}  // namespace cpu
}  // namespace PRECISION
