#include "test/compare.h"

namespace PRECISION {

// N tokens, C channels
struct Shape { int N, C; };
static const Shape kShapes[] = {{1, 1},   {1, 8},   {3, 256},  {7, 1600}, {5, 40},
                                {2, 768}, {65, 48}, {130, 33}, {301, 257}};

// Which tensors there are; without mean RMSNorm.
struct Kind {
    bool mean = true, w = true, b = true, bias = true;
    double eps = 1e-5;
};
static const Kind kKinds[] = {{},
                              {.mean = false, .b = false, .bias = false, .eps = 0.3},
                              {.mean = false, .w = false, .b = false, .bias = false, .eps = 1e-6},
                              {.b = false, .bias = false},
                              {.w = false, .eps = 0.3},
                              {.mean = false, .b = false}};

struct Tensors {
    int N, C;
    Kind kind;
    std::vector<floatX> x, r, bias, w, b, x1, y, dy, dx;
    std::vector<real> mean, rstd, dw, db, dbias;

    explicit Tensors(const Shape& s, const Kind& k = {}) : N(s.N), C(s.C), kind(k) {
        const size_t n = size_t(N) * C;
        x = normals<floatX>(n, 1, 2, 0.5), r = normals<floatX>(n, 2), bias = normals<floatX>(C, 3),
        w = normals<floatX>(C, 4, 0.3, 1);
        b = normals<floatX>(C, 5), dy = normals<floatX>(n, 6), dx = normals<floatX>(n, 7);
        x1 = poisoned<floatX>(n), y = poisoned<floatX>(n), mean = poisoned<real>(N), rstd = poisoned<real>(N);
        dw = normals<real>(C, 8), db = normals<real>(C, 9), dbias = normals<real>(C, 10);
    }
    cpu::Layernorm forward_of(floatX* stream) {
        return {.kind = kind.mean ? NormKind::LayerNorm : NormKind::RmsNorm,
                .x1 = stream,
                .y = y.data(),
                .mean = kind.mean ? mean.data() : nullptr,
                .rstd = rstd.data(),
                .x = x.data(),
                .r = r.data(),
                .bias = kind.bias ? bias.data() : nullptr,
                .w = kind.w ? w.data() : nullptr,
                .b = kind.b ? b.data() : nullptr,
                .eps = real(kind.eps)};
    }
    void forward() { cpu::layernorm_forward(forward_of(x1.data()), N, C); }
    void backward(int from, int to) {
        const size_t at = size_t(from) * C;
        cpu::Layernorm t = forward_of(x1.data() + at);
        t.mean = kind.mean ? t.mean + from : nullptr;
        t.rstd += from;
        cpu::layernorm_backward({.dx = dx.data() + at,
                                 .dw = kind.w ? dw.data() : nullptr,
                                 .db = kind.b ? db.data() : nullptr,
                                 .dbias = kind.bias ? dbias.data() : nullptr},
                                dy.data() + at, t, to - from, C);
    }
};

// x1 from x, r and bias; y and the gradients from the x1 that forward stored.
struct Reference {
    Wide x1, y, dx, dw, db, x1_sums, y_sums, dx_sums, dw_sums, db_sums;

    explicit Reference(const Tensors& t) : dx(wide(t.dx)), dw(wide(t.dw)), db(wide(t.db)) {
        const int C = t.C;
        const Kind& k = t.kind;
        const auto gain = [&](int i) { return k.w ? double(t.w[i]) : 1; };
        for (const double v : dw) dw_sums.push_back(std::fabs(v));
        for (const double v : db) db_sums.push_back(std::fabs(v));
        for (int n = 0; n < t.N; n++) {
            const size_t at = size_t(n) * C;
            double mean = 0, size = 0, var = 0, a = 0, a_sum = 0, b = 0, b_sum = 0;
            for (int i = 0; i < C; i++) {
                const double bias = k.bias ? double(t.bias[i]) : 0;
                x1.push_back(double(t.x[at + i]) + double(t.r[at + i]) + bias);
                x1_sums.push_back(std::fabs(double(t.x[at + i])) + std::fabs(double(t.r[at + i])) +
                                  std::fabs(bias));
                if (k.mean) mean += double(t.x1[at + i]) / C, size += std::fabs(double(t.x1[at + i])) / C;
            }
            for (int i = 0; i < C; i++) var += std::pow(double(t.x1[at + i]) - mean, 2) / C;
            const double rstd = 1 / std::sqrt(var + k.eps);
            auto xhat = [&](int i) { return (double(t.x1[at + i]) - mean) * rstd; };
            auto xhat_sum = [&](int i) { return (std::fabs(double(t.x1[at + i])) + size) * rstd; };
            for (int i = 0; i < C; i++) {
                const double w = gain(i), g = double(t.dy[at + i]), shift = k.b ? double(t.b[i]) : 0;
                y.push_back(xhat(i) * w + shift);
                y_sums.push_back(xhat_sum(i) * std::fabs(w) + std::fabs(shift));
                if (k.mean) a += w * g / C, a_sum += std::fabs(w * g) / C;
                b += w * g * xhat(i) / C, b_sum += std::fabs(w * g) * xhat_sum(i) / C;
                if (k.w) dw[i] += g * xhat(i), dw_sums[i] += std::fabs(g) * xhat_sum(i);
                if (k.b) db[i] += g, db_sums[i] += std::fabs(g);
            }
            for (int i = 0; i < C; i++) {
                const double wdy = gain(i) * double(t.dy[at + i]);
                dx_sums.push_back(std::fabs(dx[at + i]) +
                                  rstd * (std::fabs(wdy) + a_sum + xhat_sum(i) * b_sum));
                dx[at + i] += rstd * (wdy - a - xhat(i) * b);
            }
        }
    }
};

static void expect_right(const Kind& kind) {
    for (const Shape& s : kShapes) {
        const Lent lent(2);
        Tensors t(s, kind);
        t.forward();
        const Reference r(t);
        std::vector<real> dbias = t.dbias;
        t.backward(0, s.N);
        if (kind.bias) cpu::bias_backward(dbias.data(), t.dx.data(), s.N, s.C);
        EXPECT(same_bits(t.dbias, dbias), "{%d, %d}: the bias's gradient is no sum of dx", s.N, s.C);
        EXPECT_CLOSE(t.x1, r.x1, r.x1_sums);
        EXPECT_CLOSE(t.y, r.y, r.y_sums);
        EXPECT_CLOSE(t.dx, r.dx, r.dx_sums);
        EXPECT_CLOSE(t.dw, r.dw, r.dw_sums);
        EXPECT_CLOSE(t.db, r.db, r.db_sums);
    }
}

TEST(matches_the_reference) {
    for (const Kind& kind : kKinds) expect_right(kind);
}

// From the stored stream, and with the stream written over x: the same bits.
TEST(recomputed_and_in_place) {
    const Lent lent(2);
    Tensors t({9, 100}), u({9, 100}), v({9, 100});
    t.forward();
    cpu::Layernorm again = u.forward_of(nullptr);
    again.x = t.x1.data(), again.r = again.bias = nullptr;
    cpu::layernorm_forward(again, 9, 100);
    EXPECT(same_bits(t.y, u.y) && same_bits(t.mean, u.mean) && same_bits(t.rstd, u.rstd));
    cpu::layernorm_forward(v.forward_of(v.x.data()), 9, 100);
    EXPECT(same_bits(v.x, t.x1) && same_bits(v.y, t.y));
}

// Any number of threads, any cut of the tokens into micro-batches. 1000 tokens are several chunks.
TEST(threads_and_cuts_change_no_bit) {
    const Shape s = {1000, 264};
    std::vector<Tensors> runs;
    for (const int threads : {1, 2, 3})
        for (const int cut : {1000, 1, 333}) {
            const Lent lent(threads);
            runs.emplace_back(s);
            runs.back().forward();
            runs.back().backward(0, cut);
            if (cut < s.N) runs.back().backward(cut, s.N);
        }
    for (const Tensors& t : runs) {
        EXPECT(same_bits(t.x1, runs[0].x1) && same_bits(t.y, runs[0].y));
        EXPECT(same_bits(t.dx, runs[0].dx) && same_bits(t.dw, runs[0].dw) && same_bits(t.db, runs[0].db));
        EXPECT(same_bits(t.dbias, runs[0].dbias));
    }
}

static void expect_slopes(const Kind& kind) {
    const Lent lent(2);
    Tensors t({3, 11}, kind);
    std::fill(t.dx.begin(), t.dx.end(), floatX(0)), std::fill(t.dw.begin(), t.dw.end(), 0),
        std::fill(t.db.begin(), t.db.end(), 0);
    t.forward();
    t.backward(0, 3);
    auto loss = [&] {
        Tensors u = t;
        u.forward();
        double sum = 0;
        for (size_t i = 0; i < u.y.size(); i++) sum += double(u.y[i]) * double(u.dy[i]);
        return sum;
    };
    auto check = [&](std::vector<floatX>& x, const Wide& dx) {
        for (size_t i = 0; i < x.size(); i++) EXPECT_NEAR(dx[i], slope_of(x[i], loss), 1e-7);
    };
    check(t.x, wide(t.dx)), check(t.r, wide(t.dx)), check(t.w, wide(t.dw)), check(t.b, wide(t.db));
    Wide dbias(size_t(t.C));            // of the sum that is normed: over its rows
    for (size_t i = 0; i < t.dx.size(); i++) dbias[i % size_t(t.C)] += double(t.dx[i]);
    if (kind.bias) check(t.bias, dbias);
}

TEST_IF(sizeof(floatX) == 8, finite_differences) {
    for (const Kind& kind : kKinds) expect_slopes(kind);
}

}  // namespace PRECISION
