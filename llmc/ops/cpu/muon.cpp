// Memory-bound passes around the products; each result depends on one element alone.
#include <algorithm>
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/base/numbers/interval.h"
#include "llmc/base/numbers/simd.h"
#include "llmc/ops/cpu/rounding.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

void muon_momentum(real* u, real* m, const real* grad, const GradientState* state, real mu, size_t count) {
    if (walked(muon_momentum_cost, count)) return;
    const real scale = state->scale;
    const bool finite = state->finite;
    #pragma omp parallel for simd schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i++) {
        const real g = (1 - mu) * (grad[i] * scale), next = mu * m[i] + g;
        m[i] = finite ? next : m[i];
        u[i] = finite ? g + mu * next : real(0);
    }
}

void muon_rounded_momentum(const RoundedMomentum& m) {
    if (walked(muon_rounded_momentum_cost, m)) return;
    const RoundedMomentum c = m;            // aliases nothing that the loop writes
    constexpr size_t kCopied = 1024;
    const real scale = c.state->scale;
    const bool finite = c.state->finite;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int row = 0; row < c.rows; row++)
        for (Interval rest{0, size_t(c.cols)}; !rest.empty();) {
            const auto [first, n] = rest.take(kCopied);
            const size_t at = size_t(row) * size_t(c.cols) + first;
            real next[kCopied];
            for (size_t i = 0; i < n; i++) {
                const real g = (1 - c.mu) * (c.grad[at + i] * scale);
                next[i] = c.mu * real(c.m[at + i]) + g;
                c.u[at + i] = finite ? g + c.mu * next[i] : real(0);
            }
            if (finite)
                round_moments(c.m + at, nullptr, next, nullptr, n,
                              c.global + uint64_t(row) * c.stride + first, c.seed, c.step);
        }
}

void muon_normalize(floatX* x, const real* u, const double* squares, int rows, int cols, int slices) {
    if (walked(muon_normalize_cost, rows, cols)) return;
    const real factor = real(1 / (1.01 * std::sqrt(*squares) + 1e-7));
    const size_t width = size_t(cols / slices);
    constexpr size_t W = size_t(simd::width<real>);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int row = 0; row < rows; row++)
        for (int slice = 0; slice < slices; slice++) {
            const real* from = u + (size_t(slice) * size_t(rows) + size_t(row)) * width;
            floatX* to = x + size_t(row) * size_t(cols) + size_t(slice) * width;
            for (size_t j = 0; j < width; j += W) {
                const int left = int(std::min(width - j, W));
                simd::store(to + j, factor * simd::load(from + j, left), left);
            }
        }
}

void linear_combination(floatX* out, real a, const floatX* x, real b, const floatX* y, size_t count) {
    if (walked(linear_combination_cost, count)) return;
    constexpr size_t W = size_t(simd::width<real>);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (size_t i = 0; i < count; i += W) {
        const int left = int(std::min(count - i, W));
        simd::store(out + i, a * simd::load(x + i, left) + b * simd::load(y + i, left), left);
    }
}

// Elements of a row.
static void update_weights(real* w, const floatX* x, size_t count, const MuonUpdate& c) {
    const real rate = c.lr * c.stretch, decay = c.lr * c.decay;
    for (size_t j = 0; j < count; j++) {
        const real u = rate * real(x[j]);
        const bool decays = !c.cautious || u * w[j] >= 0;
        w[j] -= u + (decays ? decay : real(0)) * w[j];
    }
}

// A row of weights without masters: a copy in full precision is updated, and rounded.
static void update_in_place(floatX* param, const floatX* x, uint64_t global, const MuonUpdate& c) {
    constexpr size_t kCopied = 1024;
    real w[kCopied];
    for (Interval rest{0, size_t(c.cols)}; !rest.empty();) {
        const auto [first, n] = rest.take(kCopied);
        std::copy_n(param + first, n, w);
        update_weights(w, x + first, n, c);
        round_run(param + first, w, n, global + first, c.seed, c.step);
    }
}

void muon_update(const MuonUpdate& m) {
    if (walked(muon_update_cost, m)) return;
    if (!m.state->finite) return;
    const MuonUpdate c = m;                 // aliases nothing that the loop writes
    const size_t cols = size_t(c.cols);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int row = 0; row < c.rows; row++) {
        const floatX* const x = c.x + size_t(row) * c.x_stride;
        floatX* const param = c.param + size_t(row) * cols;
        const uint64_t global = c.global + uint64_t(row) * c.stride;
        if (!c.master) {
            update_in_place(param, x, global, c);
            continue;
        }
        real* const master = c.master + size_t(row) * cols;
        update_weights(master, x, cols, c);
        if (!c.param) continue;
        if (c.stochastic) round_run(param, master, cols, global, c.seed, c.step);
        else
            for (size_t j = 0; j < cols; j++) param[j] = floatX(master[j]);
    }
}

}  // namespace cpu
}  // namespace PRECISION
