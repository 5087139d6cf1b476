// A head is two halves, i and i + D/2, side by side in vectors. Heads of usual sizes stay in registers; heads
// of any other size are read again in each of their passes. Backward sums the gradients of gains in the order
// of the tokens: tokens come in chunks, first by rows, which leave a sum over the token's heads in scratch,
// then by columns.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/ops/cpu/vectors.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

static constexpr int kChunk = kCpuRotaryChunk;

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
static Halves2 rotated(const Halves2& x, const real* row, int i, int half, real direction) {
    if (!row) return x;
    const auto c = load(row + i, half - i), s = load(row + half + i, half - i) * direction;
    return {x.a * c - x.b * s, x.b * c + x.a * s};
}

static real rstd_of_squares(real squares, const Rotary& t) {
    return 1 / std::sqrt(squares / real(t.D) + t.eps);
}
static real rstd_of(const floatX* x, const Rotary& t) {
    if (t.norm == QkNorm::None) return 1;
    return rstd_of_squares(sum<real>(t.D, [&](int i, int left) {
        const auto v = load(x + i, left);
        return v * v;
    }), t);
}

// ---------------------------------------------------------------------------------------------------------
// heads in registers: n vectors a half

template <int n> struct Head { Halves2 v[n]; };

// f(k) of each vector, unrolled
template <int n, class F> [[gnu::always_inline]] static inline void each(F f) {
    #pragma GCC unroll 8
    for (int k = 0; k < n; k++) f(k);
}
template <int n, class T> [[gnu::always_inline]] static inline Halves2 vector_of(const T* x, int k) {
    return {load(x + k * W), load(x + (n + k) * W)};
}
template <int n> [[gnu::always_inline]] static inline void put_vector(floatX* x, const Halves2& v, int k) {
    store(x + k * W, v.a), store(x + (n + k) * W, v.b);
}
template <int n>
[[gnu::always_inline]] static inline Halves2 rotated_vector(const Halves2& x, const real* row, int k,
                                                           real direction) {
    if (!row) return x;
    const Halves2 of = vector_of<n>(row, k);
    const auto c = of.a, s = of.b * direction;
    return {x.a * c - x.b * s, x.b * c + x.a * s};
}
// As sum() adds.
template <int n, class Term> [[gnu::always_inline]] static inline real sum_of(Term term) {
    Vector<real> s[4] = {};
    each<n>([&](int k) { s[k % 4] += term(k); });
    return sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
}
template <int n> [[gnu::always_inline]] static inline real rstd_of(const Head<n>& x, const Rotary& t) {
    return rstd_of_squares(sum_of<2 * n>([&](int k) {
        const auto v = k < n ? x.v[k].a : x.v[k - n].b;
        return v * v;
    }), t);
}

template <int n, QkNorm norm>
static void forward_whole(floatX* x, floatX* before, const floatX* gain, const real* row, const Rotary& t) {
    Head<n> head;
    each<n>([&](int k) { head.v[k] = vector_of<n>(x, k); });
    if (before) each<n>([&](int k) { put_vector<n>(before, head.v[k], k); });
    const real rstd = norm == QkNorm::None ? 1 : rstd_of(head, t);
    each<n>([&](int k) {
        Halves2 v = head.v[k];
        if (norm == QkNorm::After) v = rotated_vector<n>(v, row, k, 1);
        if (norm != QkNorm::None) v = {v.a * rstd, v.b * rstd};
        if (gain && norm != QkNorm::None) v = times(v, vector_of<n>(gain, k));
        if (norm != QkNorm::After) v = rotated_vector<n>(v, row, k, 1);
        put_vector<n>(x, v, k);
    });
}

// As backward_head() below.
template <int n, QkNorm norm, bool gained>
static void backward_whole(floatX* dx, real* dgain, const floatX* x, const floatX* gain, const real* row,
                           const Rotary& t) {
    constexpr bool before = norm == QkNorm::Before;
    Head<n> head, dy, g;
    each<n>([&](int k) { head.v[k] = vector_of<n>(x, k); });
    const real rstd = rstd_of(head, t);
    each<n>([&](int k) {
        const Halves2 v = head.v[k], u = before ? v : rotated_vector<n>(v, row, k, 1);
        head.v[k] = {u.a * rstd, u.b * rstd};
        const Halves2 d = vector_of<n>(dx, k);
        dy.v[k] = before ? rotated_vector<n>(d, row, k, -1) : d;
        g.v[k] = gained ? times(dy.v[k], vector_of<n>(gain, k)) : dy.v[k];
    });
    const real mean = sum_of<n>([&](int k) {
        const Halves2 product = times(g.v[k], head.v[k]);
        return product.a + product.b;
    }) / real(t.D);
    each<n>([&](int k) {
        const Halves2 u = head.v[k];
        if (gained) {
            store(dgain + k * W, load(dgain + k * W) + dy.v[k].a * u.a);
            store(dgain + (n + k) * W, load(dgain + (n + k) * W) + dy.v[k].b * u.b);
        }
        const Halves2 d = {(g.v[k].a - u.a * mean) * rstd, (g.v[k].b - u.b * mean) * rstd};
        put_vector<n>(dx, before ? d : rotated_vector<n>(d, row, k, -1), k);
    });
}

// f(constant) with the vectors of half a head, 0 if they are not 1, 2 or 4.
template <class F> static auto with_vectors(const Rotary& t, F f) {
    switch (t.D % (2 * W) == 0 ? t.D / (2 * W) : 0) {
        case 1: return f(std::integral_constant<int, 1>());
        case 2: return f(std::integral_constant<int, 2>());
        case 4: return f(std::integral_constant<int, 4>());
        default: return f(std::integral_constant<int, 0>());
    }
}

// ---------------------------------------------------------------------------------------------------------
// heads of any size

static const real* table_row(const Rotary& t, int n) {
    return t.table ? t.table + size_t(t.position(n)) * size_t(t.D) : nullptr;
}

static void forward_head(floatX* x, floatX* before, const floatX* gain, const real* row, const Rotary& t) {
    const int half = t.D / 2;
    const real rstd = rstd_of(x, t);
    for (int i = 0; i < half; i += W) {
        Halves2 v = read(x, i, half);
        if (before) write(before, v, i, half);
        if (t.norm == QkNorm::After) v = rotated(v, row, i, half, 1);
        if (t.norm != QkNorm::None) v = {v.a * rstd, v.b * rstd};
        if (gain && t.norm != QkNorm::None) v = times(v, read(gain, i, half));
        if (t.norm != QkNorm::After) v = rotated(v, row, i, half, 1);
        write(x, v, i, half);
    }
}

using ForwardHead = void (*)(floatX*, floatX*, const floatX*, const real*, const Rotary&);
static ForwardHead forward_head_of(const Rotary& t) {
    return with_vectors(t, [&](auto of) -> ForwardHead {
        constexpr int n = of;
        if constexpr (n == 0) return forward_head;
        else if (t.norm == QkNorm::Before) return forward_whole<n, QkNorm::Before>;
        else if (t.norm == QkNorm::After) return forward_whole<n, QkNorm::After>;
        else return forward_whole<n, QkNorm::None>;
    });
}

void rotary_forward(const Rotary& t) {
    if (walked(rotary_forward_cost, t)) return;
    CHECK(t.D % 2 == 0, "rotary: heads of {} channels, expected an even number", t.D);
    const size_t D = size_t(t.D), heads = t.heads();
    const ForwardHead forward = forward_head_of(t);
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++)
        for (size_t h = 0; h < heads; h++)
            forward(t.qkv + size_t(n) * t.stride + h * D,
                    t.before ? t.before + (size_t(n) * heads + h) * D : nullptr,
                    h < size_t(t.NH) ? t.q_gain : t.k_gain, table_row(t, n), t);
}

static void rotate_back(floatX* dx, const real* row, int half) {
    for (int i = 0; i < half; i += W) write(dx, rotated(read(dx, i, half), row, i, half, -1), i, half);
}

// With xhat = x rstd (rotated, if the norm comes after) and dy the gradient of xhat g:
//     dg += dy xhat,   dx = rstd (g dy - xhat mean(g dy xhat))
// dgain: (D) of the token's heads, where gained.
template <QkNorm norm, bool gained>
static void backward_head(floatX* dx, real* dgain, const floatX* x, const floatX* gain, const real* row,
                          const Rotary& t) {
    const int half = t.D / 2;
    constexpr bool before = norm == QkNorm::Before;
    const real rstd = rstd_of(x, t);
    const auto xhat_of = [&](int i) {
        const Halves2 v = read(x, i, half), u = before ? v : rotated(v, row, i, half, 1);
        return Halves2{u.a * rstd, u.b * rstd};
    };
    const auto dy_of = [&](int i) {
        const Halves2 d = read(dx, i, half);
        return before ? rotated(d, row, i, half, -1) : d;
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
        write(dx, before ? d : rotated(d, row, i, half, -1), i, half);
    }
}
using BackwardHead = void (*)(floatX*, real*, const floatX*, const floatX*, const real*, const Rotary&);
template <int n, QkNorm norm, bool gained> static constexpr BackwardHead backward_of() {
    if constexpr (n == 0) return backward_head<norm, gained>;
    else return backward_whole<n, norm, gained>;
}
static BackwardHead backward_head_of(const Rotary& t) {
    constexpr QkNorm before = QkNorm::Before, after = QkNorm::After;
    return with_vectors(t, [&](auto of) {
        constexpr int n = of;
        const bool gained = t.q_gain != nullptr;
        if (t.norm == before)
            return gained ? backward_of<n, before, true>() : backward_of<n, before, false>();
        return gained ? backward_of<n, after, true>() : backward_of<n, after, false>();
    });
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
                const real* const row = table_row(t, int(n));
                if (normed)
                    backward(dx, sum ? sum + (key ? D : 0) : nullptr, t.before + (n * heads + h) * D,
                             key ? t.k_gain : t.q_gain, row, t);
                else
                    rotate_back(dx, row, t.D / 2);
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
