// Rows are spread over threads; a row stays in the L2 cache between its two passes. The first pass takes
// blocks of logits: the maximum of a block first, so that one exp per logit is enough for the online sum.
#include <algorithm>
#include <cmath>
#include <limits>

#include "llmc/base/context.h"
#include "llmc/base/math.h"
#include "llmc/base/simd.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

using namespace simd;
static constexpr int W = width<real>;
static constexpr int kBlock = 16 * W;

struct Softmax { real max, sum; };      // of a row: exp(x - max) / sum

// block[i] = exp(x[i] - max), returns their sum
static real exp_block(real* block, const floatX* x, int n, real max) {
    #pragma omp simd
    for (int i = 0; i < n; i++) block[i] = vexp(real(x[i]) - max);
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

void classifier_forward(real* losses, const floatX* logits, const int32_t* targets, int N, int V, int Vp) {
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) {
        const floatX* row = logits + size_t(n) * Vp;
        losses[n] = loss_of(softmax_of(row, V), row[targets[n]]);
    }
}

static real gradient_row(floatX* row, int32_t target, real dloss, int V, int Vp) {
    const Softmax s = softmax_of(row, V);
    const floatX logit = row[target];
    const real scale = dloss / s.sum;
    for (int i = 0; i < V; i += kBlock) {
        const int n = std::min(kBlock, V - i);
        alignas(64) real block[kBlock];
        #pragma omp simd
        for (int k = 0; k < n; k++) block[k] = vexp(real(row[i + k]) - s.max) * scale;
        for (int k = 0; k < n; k += W) store(row + i + k, load(block + k), n - k);
    }
    row[target] = floatX((vexp(real(logit) - s.max) / s.sum - 1) * dloss);
    std::fill(row + V, row + Vp, floatX(0));
    return loss_of(s, logit);
}

void classifier_forward_backward(real* losses, floatX* logits, const int32_t* targets, real dloss, int N,
                                 int V, int Vp) {
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) losses[n] = gradient_row(logits + size_t(n) * Vp, targets[n], dloss, V, Vp);
}

}  // namespace cpu
}  // namespace PRECISION
