// A head is two halves, i and i + D/2, side by side in vectors. Backward sums the gradients of gains in the
// order of the tokens: tokens come in chunks, first by rows, which leave a sum over the token's heads in
// scratch, then by columns.
#include <algorithm>
#include <cmath>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cpu/rotary.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static constexpr int kChunk = 256;      // tokens

size_t rotary_scratch(int D) { return size_t(kChunk) * 2 * size_t(D) * sizeof(real); }

// One vector of each half of a head.
struct Halves2 { Vector<real> a, b; };

static Halves2 read(const floatX* x, int i, int half) {
    return {load(x + i, half - i), load(x + half + i, half - i)};
}
static void write(floatX* x, const Halves2& v, int i, int half) {
    store(x + i, v.a, half - i), store(x + half + i, v.b, half - i);
}
static Halves2 times(const Halves2& v, const Halves2& u) { return {v.a * u.a, v.b * u.b}; }
// direction: 1, or -1 for the inverse rotation
static Halves2 turned(const Halves2& x, const real* turn, int i, int half, real direction) {
    if (!turn) return x;
    const auto c = load(turn + i, half - i), s = load(turn + half + i, half - i) * direction;
    return {x.a * c - x.b * s, x.b * c + x.a * s};
}

static real rstd_of(const floatX* x, const Rotary& t) {
    if (t.norm == QkNorm::None) return 1;
    const real squares = sum<real>(t.D, [&](int i, int left) {
        const auto v = load(x + i, left);
        return v * v;
    });
    return 1 / std::sqrt(squares / real(t.D) + t.eps);
}

static const real* turn_of(const Rotary& t, int n) {
    return t.turns ? t.turns + size_t(t.position(n)) * size_t(t.D) : nullptr;
}

static void forward_head(floatX* x, floatX* before, const floatX* gain, const real* turn, const Rotary& t) {
    const int half = t.D / 2;
    const real rstd = rstd_of(x, t);
    for (int i = 0; i < half; i += W) {
        Halves2 v = read(x, i, half);
        if (before) write(before, v, i, half);
        if (t.norm == QkNorm::After) v = turned(v, turn, i, half, 1);
        if (t.norm != QkNorm::None) v = {v.a * rstd, v.b * rstd};
        if (gain && t.norm != QkNorm::None) v = times(v, read(gain, i, half));
        if (t.norm != QkNorm::After) v = turned(v, turn, i, half, 1);
        write(x, v, i, half);
    }
}

void rotary_forward(const Rotary& t) {
    if (walked(rotary_forward_cost, t)) return;
    CHECK(t.D % 2 == 0, "rotary: heads of {} channels, expected an even number", t.D);
    const size_t D = size_t(t.D), heads = t.heads();
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++)
        for (size_t h = 0; h < heads; h++)
            forward_head(t.qkv + size_t(n) * t.stride + h * D,
                         t.before ? t.before + (size_t(n) * heads + h) * D : nullptr,
                         h < size_t(t.NH) ? t.q_gain : t.k_gain, turn_of(t, n), t);
}

static void turn_back(floatX* dx, const real* turn, int half) {
    for (int i = 0; i < half; i += W) write(dx, turned(read(dx, i, half), turn, i, half, -1), i, half);
}

// With xhat = x rstd (rotated, if the norm comes after) and dy the gradient of xhat g:
//     dg += dy xhat,   dx = rstd (g dy - xhat mean(g dy xhat))
// dgain: (D) of the token's heads, where gained.
template <QkNorm norm, bool gained>
static void backward_head(floatX* dx, real* dgain, const floatX* x, const floatX* gain, const real* turn,
                          const Rotary& t) {
    const int half = t.D / 2;
    constexpr bool before = norm == QkNorm::Before;
    const real rstd = rstd_of(x, t);
    const auto xhat_of = [&](int i) {
        const Halves2 v = read(x, i, half), u = before ? v : turned(v, turn, i, half, 1);
        return Halves2{u.a * rstd, u.b * rstd};
    };
    const auto dy_of = [&](int i) {
        const Halves2 d = read(dx, i, half);
        return before ? turned(d, turn, i, half, -1) : d;
    };
    const auto gained_of = [&](const Halves2& dy, int i) {
        return gained ? times(dy, read(gain, i, half)) : dy;
    };
    const real mean = sum<real>(half, [&](int i, int) {
        const Halves2 product = times(gained_of(dy_of(i), i), xhat_of(i));
        return product.a + product.b;
    }) / real(t.D);
    for (int i = 0; i < half; i += W) {
        const Halves2 dy = dy_of(i), u = xhat_of(i), g = gained_of(dy, i);
        if (gained) {
            store(dgain + i, load(dgain + i, half - i) + dy.a * u.a, half - i);
            store(dgain + half + i, load(dgain + half + i, half - i) + dy.b * u.b, half - i);
        }
        const Halves2 d = {(g.a - u.a * mean) * rstd, (g.b - u.b * mean) * rstd};
        write(dx, before ? d : turned(d, turn, i, half, -1), i, half);
    }
}
using BackwardHead = void (*)(floatX*, real*, const floatX*, const floatX*, const real*, const Rotary&);
static BackwardHead backward_head_of(const Rotary& t) {
    constexpr QkNorm before = QkNorm::Before, after = QkNorm::After;
    if (t.norm == before) return t.q_gain ? backward_head<before, true> : backward_head<before, false>;
    return t.q_gain ? backward_head<after, true> : backward_head<after, false>;
}

static void add_columns(real* to, const real* rows, size_t stride, int count, int left) {
    auto sum = load(to, left);
    for (int n = 0; n < count; n++) sum += load(rows + size_t(n) * stride, left);
    store(to, sum, left);
}

void rotary_backward(floatX* dqkv, real* dq_gain, real* dk_gain, const Rotary& t) {
    if (walked(rotary_backward_cost, t)) return;
    const size_t D = size_t(t.D), heads = t.heads();
    const bool gains = t.q_gain != nullptr, normed = t.norm != QkNorm::None;
    const BackwardHead backward = backward_head_of(t);
    if (gains) use_scratch("rotary", rotary_scratch(t.D));
    real* sums = gains ? reinterpret_cast<real*>(context.scratch) : nullptr;        // (kChunk, 2, D)
    #pragma omp parallel num_threads(context.threads)
    for (int start = 0; start < t.N; start += kChunk) {
        const int rows = std::min(kChunk, t.N - start);
        #pragma omp for schedule(static)
        for (int i = 0; i < rows; i++) {
            const size_t n = size_t(start + i);
            real* const sum = gains ? sums + size_t(i) * 2 * D : nullptr;
            if (sum) std::fill(sum, sum + 2 * D, real(0));
            for (size_t h = 0; h < heads; h++) {
                const bool key = h >= size_t(t.NH);
                floatX* const dx = dqkv + n * t.stride + h * D;
                const real* const turn = turn_of(t, int(n));
                if (normed)
                    backward(dx, sum ? sum + (key ? D : 0) : nullptr, t.before + (n * heads + h) * D,
                             key ? t.k_gain : t.q_gain, turn, t);
                else
                    turn_back(dx, turn, t.D / 2);
            }
        }
        #pragma omp for schedule(static)
        for (int i = 0; i < (gains ? t.D : 0); i += W) {
            add_columns(dq_gain + i, sums + i, 2 * D, rows, t.D - i);
            add_columns(dk_gain + i, sums + D + size_t(i), 2 * D, rows, t.D - i);
        }
    }
}

}  // namespace cpu
}  // namespace PRECISION
