// Rows are spread over threads; a row stays in the L2 cache between its two passes. The first pass takes
// blocks of logits: the maximum of a block first, so that one exp per logit is enough for the online sum.
#include <algorithm>
#include <cmath>
#include <limits>

#include "llmc/base/context.h"
#include "llmc/base/math.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kBlock = 16 * W;

// A chunk moves 12 bytes for each element of wte and computes 6 x 1024 operations: a twentieth of its time at
// 600 GFLOP/s and 25 GB/s.
int logit_rows() { return reached_by_host() ? 1024 : kLogitRowsOfGpu; }

struct Softmax { real max, sum; };      // of a row: exp(x - max) / sum

// block[i] = exp(x[i] - max), returns their sum
static real exp_block(real* block, const floatX* x, int n, real max) {
    #pragma omp simd
    for (int i = 0; i < n; i++) block[i] = vexp_negative(real(x[i]) - max);
    return sum<real>(n, [&](int i, int left) { return load(block + i, left); });
}

static real max_of(const floatX* x, int n, real max) {
    #pragma omp simd reduction(max : max)
    for (int i = 0; i < n; i++) max = real(x[i]) > max ? real(x[i]) : max;
    return max;
}

// NaN among the logits, or +inf, makes the sum NaN. The lowest finite number as first maximum, and not -inf,
// keeps rows with some -inf right.
static Softmax softmax_of(const floatX* x, int V) {
    alignas(64) real block[kBlock];
    real max = std::numeric_limits<real>::lowest();
    double total = 0;
    for (int i = 0; i < V; i += kBlock) {
        const int n = std::min(kBlock, V - i);
        const real larger = max_of(x + i, n, max);
        if (larger > max) total *= std::exp(double(max) - double(larger)), max = larger;
        total += double(exp_block(block, x + i, n, max));
    }
    return {max, real(total)};
}

static real loss_of(const Softmax& s, floatX target) { return std::log(s.sum) + (s.max - real(target)); }

// The statistics of a part: maximum, sum, and the target's logit if it is here.
static void part_of(real* stats, const floatX* row, int column, int V) {
    const Softmax s = softmax_of(row, V);
    stats[0] = s.max, stats[1] = s.sum, stats[2] = column >= 0 && column < V ? real(row[column]) : real(0);
}

static void parts_of(const Classifier& t) {
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++)
        part_of(t.stats + 3 * size_t(n), t.logits + size_t(n) * t.Vp, t.targets[n] - t.v0, t.V);
}

void classifier_forward(const Classifier& t) {
    if (walked(classifier_forward_cost, t)) return;
    if (t.parts > 1) return parts_of(t);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++) {
        const floatX* row = t.logits + size_t(n) * t.Vp;
        t.losses[n] = loss_of(softmax_of(row, t.V), row[t.targets[n]]);
    }
}

// The row becomes exp(row - max) * dloss / sum, the target's column less dloss.
static void gradient_of(floatX* row, const Softmax& s, int column, real dloss, int V, int Vp) {
    const bool here = column >= 0 && column < V;
    const floatX logit = here ? row[column] : floatX(0);
    const real scale = dloss / s.sum;
    for (int i = 0; i < V; i += kBlock) {
        const int n = std::min(kBlock, V - i);
        alignas(64) real block[kBlock];
        #pragma omp simd
        for (int k = 0; k < n; k++) block[k] = vexp(real(row[i + k]) - s.max) * scale;
        for (int k = 0; k < n; k += W) store(row + i + k, load(block + k), n - k);
    }
    if (here) row[column] = floatX((vexp(real(logit) - s.max) / s.sum - 1) * dloss);
    std::fill(row + V, row + Vp, floatX(0));
}

void classifier_forward_backward(const Classifier& t, real dloss) {
    if (walked(classifier_forward_backward_cost, t)) return;
    if (t.parts > 1) return parts_of(t);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++) {
        floatX* row = t.logits + size_t(n) * t.Vp;
        const Softmax s = softmax_of(row, t.V);
        t.losses[n] = loss_of(s, row[t.targets[n]]);
        gradient_of(row, s, t.targets[n], dloss, t.V, t.Vp);
    }
}

// Of row n over all parts.
static Softmax merged(const Classifier& t, const real* stats, int n) {
    const auto part = [&](int p) { return stats + 3 * (size_t(p) * t.N + n); };
    real max = part(0)[0];
    for (int p = 1; p < t.parts; p++) max = std::max(max, part(p)[0]);
    double total = 0;
    for (int p = 0; p < t.parts; p++)
        total += double(part(p)[1]) * std::exp(double(part(p)[0]) - double(max));
    return {max, real(total)};
}

static void merge(const Classifier& t, const real* stats, const real* dloss) {
    if (t.parts == 1) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++) {
        const Softmax s = merged(t, stats, n);
        const size_t owner = size_t(t.targets[n] / t.Vp);
        t.losses[n] = std::log(s.sum) + (s.max - stats[3 * (owner * t.N + n) + 2]);
        if (dloss) gradient_of(t.logits + size_t(n) * t.Vp, s, t.targets[n] - t.v0, *dloss, t.V, t.Vp);
    }
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
}  // namespace PRECISION
