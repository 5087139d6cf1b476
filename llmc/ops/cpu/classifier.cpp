// Rows are spread over threads; a row stays in the L2 cache between its two passes. The first pass takes
// blocks of logits: the maximum of a block first, so that one exp per logit is enough for the online sum. For
// the second pass it keeps capped logits, or without a cap the exps. Exps of a block serve if the maximum so
// far was the row's.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "llmc/base/context.h"
#include "llmc/base/numbers/math.h"
#include "llmc/ops/ops.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kBlock = 16 * W;

// A chunk moves 12 bytes for each element of wte and computes 6 x 1024 operations: a twentieth of its time at
// 600 GFLOP/s and 25 GB/s.
int logit_rows() { return reached_by_host() ? 1024 : kLogitRowsOfGpu; }

// What stands between the logits in memory and those of the softmax. slope: of y with respect to l.
struct NoCap {
    [[gnu::always_inline]] real operator()(real l) const { return l; }
    [[gnu::always_inline]] real slope(real) const { return 1; }
};
struct TanhCap {
    real c;
    [[gnu::always_inline]] real operator()(real l) const { return c * vtanh(l / c); }
    [[gnu::always_inline]] real slope(real y) const { return 1 - (y / c) * (y / c); }
};
struct SqrtCap {
    real c;
    [[gnu::always_inline]] real operator()(real l) const { return c * l / std::sqrt(l * l + c * c); }
    [[gnu::always_inline]] real slope(real y) const {
        const real rest = 1 - (y / c) * (y / c);
        return rest * std::sqrt(rest);
    }
};

// f(cap) of t's kind.
template <class F> static void with_cap(const Classifier& t, F f) {
    if (t.cap == 0) f(NoCap());
    else if (t.cap_kind == SoftcapKind::Tanh) f(TanhCap{t.cap});
    else f(SqrtCap{t.cap});
}

template <class Cap> static constexpr bool kCapped = !std::is_same_v<Cap, NoCap>;

struct Softmax { real max, sum; };      // of a row: exp(y - max) / sum

// Of a row, from pass to pass; null: nothing is kept.
struct Kept {
    real* values;                       // (V)  y, or without a cap exp(y - the maximum of the blocks so far)
    real *maxima, *least;               // (blocks)  of the blocks so far; the block's least y - this maximum
};

static size_t kept_size(int V) { return size_t(V + kBlock - 1) / kBlock * (kBlock + W); }
static size_t scratch_of(int threads, int V) { return size_t(threads) * kept_size(V) * sizeof(real); }

static Kept kept_of_thread(std::byte* scratch, int V) {
    real* const values = reinterpret_cast<real*>(scratch) + size_t(omp_get_thread_num()) * kept_size(V);
    const size_t blocks = size_t(V + kBlock - 1) / kBlock;
    return {values, values + blocks * kBlock, values + blocks * (kBlock + 1)};
}

// block[i] = exp(x[i] - max); returns their sum, and the least difference.
struct Exps { real sum, least; };
template <class X>
[[gnu::always_inline]] static inline Exps exp_block(real* block, const X* x, int n, real max) {
    real least = 0;
    #pragma omp simd reduction(min : least)
    for (int i = 0; i < n; i++) {
        const real d = real(x[i]) - max;
        block[i] = vexp_negative(d);
        least = d < least ? d : least;
    }
    return {sum<real>(n, [&](int i, int left) { return load(block + i, left); }), least};
}

[[gnu::always_inline]] static inline real max_of(const floatX* x, int n, real max) {
    #pragma omp simd reduction(max : max)
    for (int i = 0; i < n; i++) {
        const real y = real(x[i]);
        max = y > max ? y : max;
    }
    return max;
}

// block[i] = cap(x[i]), returns the maximum
template <class Cap> static real cap_block(real* block, const floatX* x, int n, real max, Cap cap) {
    #pragma omp simd reduction(max : max)
    for (int i = 0; i < n; i++) {
        const real y = cap(real(x[i]));
        block[i] = y;
        max = y > max ? y : max;
    }
    return max;
}

// NaN among the logits, or +inf, makes the sum NaN. The lowest finite number as first maximum, and not -inf,
// keeps rows with some -inf right.
template <class Cap>
static Softmax softmax_of(const floatX* x, int V, Cap cap, const Kept& kept = {}) {
    alignas(64) real block[kBlock];
    real max = std::numeric_limits<real>::lowest();
    double total = 0;
    for (int i = 0; i < V; i += kBlock) {
        const int n = std::min(kBlock, V - i);
        real* const keep = kept.values ? kept.values + i : block;
        const real larger = kCapped<Cap> ? cap_block(keep, x + i, n, max, cap) : max_of(x + i, n, max);
        if (larger > max) {
            total *= std::exp(double(max) - double(larger));
            max = larger;
        }
        const Exps exps = kCapped<Cap> ? exp_block(block, keep, n, max) : exp_block(keep, x + i, n, max);
        total += double(exps.sum);
        if (kept.values) kept.maxima[i / kBlock] = max, kept.least[i / kBlock] = exps.least;
    }
    return {max, real(total)};
}

static real loss_of(const Softmax& s, real target) { return std::log(s.sum) + (s.max - target); }

// The statistics of a slice: maximum, sum, and the target's logit if it is here.
template <class Cap> static void row_statistics(real* stats, const floatX* row, int column, int V, Cap cap) {
    const Softmax s = softmax_of(row, V, cap);
    stats[0] = s.max, stats[1] = s.sum;
    stats[2] = column >= 0 && column < V ? cap(real(row[column])) : real(0);
}

static void slice_statistics(const Classifier& t) {
    with_cap(t, [&](auto cap) {
        #pragma omp parallel for schedule(static) num_threads(context.threads)
        for (int n = 0; n < t.N; n++)
            row_statistics(t.stats + 3 * size_t(n), t.logits + size_t(n) * t.Vp, t.targets[n] - t.v0, t.V,
                           cap);
    });
}

void classifier_forward(const Classifier& t) {
    if (walked(classifier_forward_cost, t)) return;
    if (t.slices > 1) return slice_statistics(t);
    with_cap(t, [&](auto cap) {
        #pragma omp parallel for schedule(static) num_threads(context.threads)
        for (int n = 0; n < t.N; n++) {
            const floatX* row = t.logits + size_t(n) * t.Vp;
            t.losses[n] = loss_of(softmax_of(row, t.V, cap), cap(real(row[t.targets[n]])));
        }
    });
}

// block[i] = exp(y - max) * scale, times the slope of y. value: y of an x. normal: each exp is normal
template <bool normal, class Value, class Cap, class X>
[[gnu::always_inline]] static inline void gradient_block(real* block, const X* x, int n, real max, real scale,
                                                         Value value, Cap cap) {
    #pragma omp simd
    for (int i = 0; i < n; i++) {
        const real y = value(real(x[i]));
        block[i] = (normal ? vexp_negative(y - max) : vexp(y - max)) * scale * cap.slope(y);
    }
}

// The row becomes exp(y - max) * dloss / sum, the target's column less dloss, times the slope of y.
template <class Cap>
static void gradient_of(floatX* row, const Softmax& s, int column, real dloss, int V, int Vp, Cap cap,
                        const Kept& kept = {}) {
    const bool here = column >= 0 && column < V;
    const floatX logit = here ? row[column] : floatX(0);
    const real scale = dloss / s.sum;
    for (int i = 0; i < V; i += kBlock) {
        const int n = std::min(kBlock, V - i);
        alignas(64) real block[kBlock];
        const real* const values = kept.values ? kept.values + i : nullptr;
        // vexp_negative() is vexp() to the bit where the results are normal numbers
        const real before = values ? kept.maxima[i / kBlock] : 0;
        const bool normal = values && kept.least[i / kBlock] + (before - s.max) > -86;
        if (!kCapped<Cap> && normal && before == s.max) {
            for (int k = 0; k < n; k += W) store(row + i + k, load(values + k) * scale, n - k);
            continue;
        }
        if (kCapped<Cap> && normal) gradient_block<true>(block, values, n, s.max, scale, NoCap(), cap);
        else if (normal) gradient_block<true>(block, row + i, n, s.max, scale, cap, cap);
        else gradient_block<false>(block, row + i, n, s.max, scale, cap, cap);
        for (int k = 0; k < n; k += W) store(row + i + k, load(block + k), n - k);
    }
    const real y = cap(real(logit));
    if (here) row[column] = floatX((vexp(y - s.max) / s.sum - 1) * dloss * cap.slope(y));
    std::fill(row + V, row + Vp, floatX(0));
}

void classifier_forward_backward(const Classifier& t, real dloss) {
    if (walked(classifier_forward_backward_cost, t)) return;
    if (t.slices > 1) return slice_statistics(t);
    use_scratch("classifier", scratch_of(context.threads, t.V));
    std::byte* const scratch = context.scratch;
    with_cap(t, [&](auto cap) {
        #pragma omp parallel for schedule(static) num_threads(context.threads)
        for (int n = 0; n < t.N; n++) {
            floatX* row = t.logits + size_t(n) * t.Vp;
            const Kept kept = kept_of_thread(scratch, t.V);
            const Softmax s = softmax_of(row, t.V, cap, kept);
            t.losses[n] = loss_of(s, cap(real(row[t.targets[n]])));
            gradient_of(row, s, t.targets[n], dloss, t.V, t.Vp, cap, kept);
        }
    });
}

void classifier_largest(real* values, int32_t* columns, const Classifier& t) {
    if (walked(classifier_largest_cost, t)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++) {
        const floatX* row = t.logits + size_t(n) * t.Vp;
        const real lowest = std::numeric_limits<real>::lowest(), max = max_of(row, t.V, lowest);
        int column = 0;
        while (column < t.V && real(row[column]) != max) column++;
        values[n] = max, columns[n] = column < t.V ? t.v0 + column : -1;
    }
}

// Of row n over all slices.
static Softmax merged(const Classifier& t, const real* stats, int n) {
    const auto slice = [&](int p) { return stats + 3 * (size_t(p) * t.N + n); };
    real max = slice(0)[0];
    for (int p = 1; p < t.slices; p++) max = std::max(max, slice(p)[0]);
    double total = 0;
    for (int p = 0; p < t.slices; p++)
        total += double(slice(p)[1]) * std::exp(double(slice(p)[0]) - double(max));
    return {max, real(total)};
}

static void merge(const Classifier& t, const real* stats, const real* dloss) {
    if (t.slices == 1) return;
    with_cap(t, [&](auto cap) {
        #pragma omp parallel for schedule(static) num_threads(context.threads)
        for (int n = 0; n < t.N; n++) {
            const Softmax s = merged(t, stats, n);
            const size_t owner = size_t(t.targets[n] / t.Vp);
            t.losses[n] = loss_of(s, stats[3 * (owner * t.N + n) + 2]);
            if (!dloss) continue;
            gradient_of(t.logits + size_t(n) * t.Vp, s, t.targets[n] - t.v0, *dloss, t.V, t.Vp, cap);
        }
    });
}

void classifier_merge(const Classifier& t, const real* stats) {
    if (walked(classifier_merge_cost, t)) return;
    merge(t, stats, nullptr);
}

void classifier_merge_backward(const Classifier& t, const real* stats, real dloss) {
    if (walked(classifier_merge_backward_cost, t)) return;
    merge(t, stats, &dloss);
}

}  // namespace cpu

Needs needs::classifier(int threads, int V) { return {.scratch = cpu::scratch_of(threads, V), .library = 0}; }

}  // namespace PRECISION
