// Rows are spread over threads. Backward also sums down the columns: tokens come in chunks that stay in
// cache, first by rows for dx, then by columns for dw, db and dbias. Each column's sum runs in the order of
// the tokens.
#include <algorithm>
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kChunkBytes = 1 << 19;     // of dy and of x1 together: half of a common L2 cache

// Of a gain or a shift: `without` where the norm has none.
static Vector<real> load_or(real without, const floatX* p, int i, int left) {
    return p ? load(p + i, left) : Vector<real>{} + without;
}

static void residual_row(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int C) {
    for (int i = 0; i < C; i += W)
        store(out + i, load(x + i, C - i) + (load(r + i, C - i) + load_or(0, bias, i, C - i)), C - i);
}

static void forward_row(const Layernorm& t, size_t n, int C) {
    const floatX* x = t.x + n * C;
    floatX* y = t.y + n * C;
    if (t.r) {
        floatX* x1 = t.x1 + n * C;
        residual_row(x1, x, t.r + n * C, t.bias, C);
        x = x1;
    }
    const real mean =
        has_mean(t.kind) ? sum<real>(C, [&](int i, int left) { return load(x + i, left); }) / real(C) : 0;
    const real var = sum<real>(C, [&](int i, int left) {
        const auto d = load(x + i, left) - mean;
        return d * d;
    }) / real(C);
    const real rstd = 1 / std::sqrt(var + t.eps);
    for (int i = 0; i < C; i += W) {
        const auto gain = load_or(1, t.w, i, C - i), shift = load_or(0, t.b, i, C - i);
        store(y + i, (load(x + i, C - i) - mean) * rstd * gain + shift, C - i);
    }
    if (has_mean(t.kind)) t.mean[n] = mean;
    t.rstd[n] = rstd;
}

void layernorm_forward(const Layernorm& t, int N, int C) {
    if (walked(layernorm_forward_cost, t, N, C)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++) forward_row(t, n, C);
    const Unrecorded pass;
    if (t.amaxes) largest(t.amaxes, t.y, size_t(N) * size_t(C));
}

void add_residual(floatX* out, const floatX* x, const floatX* r, const floatX* bias, int N, int C) {
    if (walked(add_residual_cost, bias != nullptr, N, C)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < N; n++)
        residual_row(out + size_t(n) * C, x + size_t(n) * C, r + size_t(n) * C, bias, C);
}

// dx += rstd (w dy - mean(w dy) - xhat mean(w dy xhat)),  xhat = (x1 - mean) rstd, for token n. Without
// has_mean both means of x1 and w dy are left out.
static void backward_row(floatX* dx, const floatX* dy, const Layernorm& t, size_t n, int C) {
    const bool centered = has_mean(t.kind);
    const floatX* const x1 = t.x1 + n * C;
    const real center = centered ? t.mean[n] : 0, rstd = t.rstd[n];
    const auto wdy = [=](int i, int left) { return load_or(1, t.w, i, left) * load(dy + i, left); };
    const real a = centered ? sum<real>(C, wdy) / real(C) : 0;
    const real b = sum<real>(C, [&](int i, int left) {
        return wdy(i, left) * ((load(x1 + i, left) - center) * rstd);
    }) / real(C);
    for (int i = 0; i < C; i += W) {
        const auto xhat = (load(x1 + i, C - i) - center) * rstd;
        const auto g = (wdy(i, C - i) - a - xhat * b) * rstd;
        store(dx + i, load(dx + i, C - i) + g, C - i);
    }
}

// dw += sum of dy xhat, db += sum of dy, over `rows` tokens from n on, for W columns from i on. Either may be
// null.
static void backward_columns(real* dw, real* db, const floatX* dy, const Layernorm& t, size_t n, int rows,
                             int i, int C) {
    Vector<real> w = {}, b = {};
    const int left = C - i;
    if (dw) w = load(dw + i, left);
    if (db) b = load(db + i, left);
    for (const size_t end = n + size_t(rows); n < end; n++) {
        const auto g = load(dy + n * C + i, left);
        w += g * ((load(t.x1 + n * C + i, left) - (has_mean(t.kind) ? t.mean[n] : 0)) * t.rstd[n]);
        b += g;
    }
    if (dw) store(dw + i, w, left);
    if (db) store(db + i, b, left);
}

// dbias += sum of dx, likewise.
static void bias_columns(real* dbias, const floatX* dx, size_t n, int rows, int i, int C) {
    Vector<real> sum = load(dbias + i, C - i);
    for (const size_t end = n + size_t(rows); n < end; n++) sum += load(dx + n * C + i, C - i);
    store(dbias + i, sum, C - i);
}

void layernorm_backward(const NormGrads& g, const floatX* dy, const Layernorm& t, int N, int C) {
    if (walked(layernorm_backward_cost, g, t, N, C)) return;
    const int chunk = std::max(1, int(kChunkBytes / (2 * size_t(C) * sizeof(floatX))));
    #pragma omp parallel num_threads(context.threads)
    for (int start = 0; start < N; start += chunk) {
        const int rows = std::min(chunk, N - start);
        #pragma omp for schedule(static) nowait
        for (int n = start; n < start + rows; n++)
            backward_row(g.dx + size_t(n) * C, dy + size_t(n) * C, t, size_t(n), C);
        #pragma omp for schedule(static)
        for (int i = 0; i < (g.dw || g.db ? C : 0); i += W)
            backward_columns(g.dw, g.db, dy, t, size_t(start), rows, i, C);
        // the loop above ends with a barrier: all rows of dx are there
        #pragma omp for schedule(static) nowait
        for (int i = 0; i < (g.dbias ? C : 0); i += W)
            bias_columns(g.dbias, g.dx, size_t(start), rows, i, C);
    }
}

}  // namespace cpu
}  // namespace PRECISION
