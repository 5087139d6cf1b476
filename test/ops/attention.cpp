#include "test/compare.h"

namespace PRECISION {

using cpu::AttentionDims;

struct Shape { int B, Tq, Tk, NH, D, q_offset, k_offset, group = 1; };     // group: of query heads

static const Shape kShapes[] = {
    {1, 1, 1, 1, 8, 0, 0},     {3, 5, 5, 2, 16, 0, 0},     {2, 64, 64, 1, 64, 0, 0},
    {1, 65, 65, 2, 32, 0, 0},  {2, 130, 130, 3, 24, 0, 0}, {1, 200, 200, 1, 128, 0, 0},
    {2, 70, 70, 2, 5, 0, 0},   {1, 129, 129, 1, 80, 0, 0}, {1, 1, 77, 2, 64, 76, 0},
    {2, 3, 40, 2, 32, 37, 0},  {1, 5, 11, 1, 17, 10, 4},   {1, 70, 40, 1, 16, 3, 0},
    {1, 33, 33, 25, 64, 0, 0}, {1, 300, 300, 2, 32, 0, 0}, {1, 150, 600, 1, 16, 449, 0},
    {2, 70, 70, 6, 24, 0, 0, 3}, {1, 300, 300, 4, 32, 0, 0, 4}, {2, 3, 40, 4, 16, 37, 0, 2},
};

// q, k and v in one packed matrix where queries and keys are the same rows, else in two.
struct Tensors {
    AttentionDims d;
    std::vector<floatX> q, k, v, dout, out, dq, dk, dv;
    std::vector<real> lse;

    Tensors(const Shape& s, double size = 1) {
        const size_t C = size_t(s.NH) * s.D, CK = C / size_t(s.group), q_rows = size_t(s.B) * s.Tq,
                     k_rows = size_t(s.B) * s.Tk;
        d = {.B = s.B,
             .Tq = s.Tq,
             .Tk = s.Tk,
             .NH = s.NH,
             .D = s.D,
             .q_stride = C + 3,
             .kv_stride = 2 * CK + 1,
             .q_offset = s.q_offset,
             .k_offset = s.k_offset,
             .key_heads = s.NH / s.group};
        q = normals<floatX>(q_rows * d.q_stride, 1, size), k = normals<floatX>(k_rows * d.kv_stride, 2, size);
        v = normals<floatX>(k_rows * d.kv_stride, 3), dout = normals<floatX>(q_rows * C, 4);
        out = poisoned<floatX>(q_rows * C), lse = poisoned<real>(size_t(s.B) * s.NH * s.Tq);
        dq = poisoned<floatX>(q.size()), dk = poisoned<floatX>(k.size()), dv = poisoned<floatX>(v.size());
    }
    void run() {
        cpu::attention_forward(out.data(), lse.data(), q.data(), k.data(), v.data(), d);
        cpu::attention_backward({.dq = dq.data(),
                                 .dk = dk.data(),
                                 .dv = dv.data(),
                                 .dout = dout.data(),
                                 .out = out.data(),
                                 .lse = lse.data(),
                                 .q = q.data(),
                                 .k = k.data(),
                                 .v = v.data()},
                                d);
    }
};

// By the formulas, with the sum of the absolute terms of each element. delta is of the stored `out`, the
// input of the backward pass. spread: an error e of a score is a relative error e of p; for large scores, the
// products of the score count as terms of p.
struct Reference {
    AttentionDims d;
    bool spread;
    Wide stored, q, k, v, dout, out, lse, dq, dk, dv, out_sums, lse_sums, dq_sums, dk_sums, dv_sums;

    Reference(const Tensors& t, bool spread)
        : d(t.d), spread(spread), stored(wide(t.out)), q(wide(t.q)), k(wide(t.k)), v(wide(t.v)),
          dout(wide(t.dout)) {
        for (Wide* w : {&out, &out_sums}) w->assign(t.out.size(), 0);
        for (Wide* w : {&lse, &lse_sums}) w->assign(t.lse.size(), 0);
        for (Wide* w : {&dq, &dq_sums}) w->assign(t.q.size(), 0);
        for (Wide* w : {&dk, &dv, &dk_sums, &dv_sums}) w->assign(t.k.size(), 0);
        for (int b = 0; b < d.B; b++)
            for (int h = 0; h < d.NH; h++)
                for (int i = 0; i < d.Tq; i++) row(b, h, i);
    }

    void row(int b, int h, int i) {
        const size_t C = size_t(d.NH) * d.D, at_o = (size_t(b) * d.Tq + i) * C + h * d.D;
        const size_t at_q = (size_t(b) * d.Tq + i) * d.q_stride + h * d.D,
                     at_l = (size_t(b) * d.NH + h) * d.Tq + i;
        const double scale = 1 / std::sqrt(double(d.D));
        const int keys = std::min(d.Tk, d.q_offset + i - d.k_offset + 1);
        Wide s(keys), p(keys), sizes(keys), dp(keys), dp_sums(keys);
        auto key = [&](int u) { return (size_t(b) * d.Tk + u) * d.kv_stride + h / d.group() * d.D; };
        double max = -INFINITY, total = 0, delta = 0, delta_sum = 0;
        for (int u = 0; u < keys; u++) {
            for (int c = 0; c < d.D; c++) {
                const double product = q[at_q + c] * k[key(u) + c] * scale;
                s[u] += product, sizes[u] += std::fabs(product);
            }
            max = std::max(max, s[u]);
            lse_sums[at_l] = std::max(lse_sums[at_l], sizes[u] + 1);
        }
        for (int u = 0; u < keys; u++) total += std::exp(s[u] - max);
        lse[at_l] = max + std::log(total);
        for (int u = 0; u < keys; u++) {
            p[u] = std::exp(s[u] - lse[at_l]);
            sizes[u] = p[u] * (spread ? 1 + sizes[u] + lse_sums[at_l] : 1);
            for (int c = 0; c < d.D; c++) {
                const double o = v[key(u) + c], grad = dout[at_o + c];
                out[at_o + c] += p[u] * o, out_sums[at_o + c] += sizes[u] * std::fabs(o);
                dp[u] += grad * o, dp_sums[u] += std::fabs(grad * o);
                dv[key(u) + c] += p[u] * grad, dv_sums[key(u) + c] += sizes[u] * std::fabs(grad);
            }
        }
        for (int c = 0; c < d.D; c++)
            delta += dout[at_o + c] * stored[at_o + c],
                delta_sum += std::fabs(dout[at_o + c]) * out_sums[at_o + c];
        for (int u = 0; u < keys; u++)
            for (int c = 0; c < d.D; c++) {
                const double ds = scale * p[u] * (dp[u] - delta),
                             size = scale * sizes[u] * (dp_sums[u] + delta_sum);
                dq[at_q + c] += ds * k[key(u) + c], dq_sums[at_q + c] += size * std::fabs(k[key(u) + c]);
                dk[key(u) + c] += ds * q[at_q + c], dk_sums[key(u) + c] += size * std::fabs(q[at_q + c]);
            }
    }
};

// The columns of a strided matrix: those of its rows, and unused columns between.
template <class T>
static std::vector<T> columns(const std::vector<T>& m, size_t stride, size_t first, size_t last) {
    std::vector<T> out;
    for (size_t row = 0; row < m.size(); row += stride)
        for (size_t i = first; i < last; i++) out.push_back(m[row + i]);
    return out;
}

static void expect_the_reference(const Shape& s, double size) {
    const Lent lent(2);
    Tensors t(s, size);
    t.run();
    const Reference r(t, size > 2);
    const size_t C = size_t(s.NH) * s.D, qs = t.d.q_stride, ks = t.d.kv_stride;
    const auto width = [&](size_t stride) { return stride == qs ? C : C / size_t(s.group); };
    auto inside = [&](const auto& m, size_t stride) { return columns(m, stride, 0, width(stride)); };
    EXPECT_CLOSE(t.out, r.out, r.out_sums);
    EXPECT(compare_sums(t.lse, r.lse, r.lse_sums).excess <= 1, "B %d T %d", s.B, s.Tq);
    EXPECT_CLOSE(inside(t.dq, qs), inside(r.dq, qs), inside(r.dq_sums, qs), 2);
    EXPECT_CLOSE(inside(t.dk, ks), inside(r.dk, ks), inside(r.dk_sums, ks), 2);
    EXPECT_CLOSE(inside(t.dv, ks), inside(r.dv, ks), inside(r.dv_sums, ks), 2);
    auto untouched = [&](const std::vector<floatX>& m, size_t stride, const char* what) {
        for (const floatX x : columns(m, stride, width(stride), stride))
            EXPECT(std::isnan(double(x)), "%s between the rows was written", what);
    };
    untouched(t.dq, qs, "dq"), untouched(t.dk, ks, "dk"), untouched(t.dv, ks, "dv");
}

TEST(matches_the_reference) {
    for (const Shape& s : kShapes) expect_the_reference(s, 1);
}
// Queries and keys of a trained model are larger than 1: a softmax that few keys share.
TEST(matches_the_reference_at_larger_scores) {
    for (const double size : {2., 3., 4.})
        for (const Shape& s : kShapes) expect_the_reference(s, size);
}

TEST(threads_change_no_bit) {
    const Shape s = {3, 130, 130, 2, 40, 0, 0};
    std::vector<Tensors> runs;
    for (const int threads : {1, 2, 3}) {
        const Lent lent(threads);
        runs.emplace_back(s);
        runs.back().run();
    }
    for (const Tensors& t : runs) {
        EXPECT(same_bits(t.out, runs[0].out) && same_bits(t.lse, runs[0].lse));
        EXPECT(same_bits(t.dq, runs[0].dq) && same_bits(t.dk, runs[0].dk) && same_bits(t.dv, runs[0].dv));
    }
}

// A sequence gives the same bits alone and among others.
TEST(sequences_do_not_meet) {
    const Shape s = {3, 70, 70, 2, 16, 0, 0};
    const Lent lent(2);
    Tensors all(s);
    all.run();
    Shape one = s;
    one.B = 1;
    for (int b = 0; b < s.B; b++) {
        Tensors t(one);
        auto part = [&](auto& small, const auto& large) {
            small.assign(large.begin() + b * small.size(), large.begin() + (b + 1) * small.size());
        };
        part(t.q, all.q), part(t.k, all.k), part(t.v, all.v), part(t.dout, all.dout);
        t.run();
        Tensors want(one);
        part(want.out, all.out), part(want.lse, all.lse), part(want.dq, all.dq), part(want.dk, all.dk),
            part(want.dv, all.dv);
        EXPECT(same_bits(t.out, want.out) && same_bits(t.lse, want.lse), "sequence %d", b);
        EXPECT(same_bits(t.dq, want.dq) && same_bits(t.dk, want.dk) && same_bits(t.dv, want.dv),
               "sequence %d", b);
    }
}

// One query against the keys so far, as generation asks, gives its row of the whole.
TEST(cached_rows) {
    const Shape s = {1, 150, 150, 2, 32, 0, 0};
    const Lent lent(2);
    Tensors t(s);
    t.run();
    const int C = s.NH * s.D;
    for (int i = 0; i < s.Tq; i += 7) {
        AttentionDims d = t.d;
        d.Tq = 1, d.Tk = i + 1, d.q_offset = i;
        std::vector<floatX> row(C);
        std::vector<real> lse(s.NH);
        cpu::attention_forward(row.data(), lse.data(), t.q.data() + i * d.q_stride, t.k.data(), t.v.data(),
                               d);
        const double tolerance = sizeof(real) == 8 ? 1e-12 : sizeof(floatX) == 4 ? 1e-5 : 1e-2;
        for (int c = 0; c < C; c++) EXPECT_NEAR(row[c], t.out[i * C + c], tolerance);
    }
}

// Scores of some thousands: no overflow, and the largest takes all.
TEST(large_scores) {
    const Shape s = {1, 80, 80, 1, 64, 0, 0};
    const Lent lent(1);
    Tensors t(s, 40);
    t.run();
    for (const auto* m : {&t.out, &t.dq, &t.dk, &t.dv})
        for (const floatX x : columns(*m, m->size() / 80, 0, 64)) EXPECT(std::isfinite(double(x)));
    for (int c = 0; c < 64; c++) EXPECT_NEAR(t.out[c], t.v[c], 1e-6);
}

TEST_IF(sizeof(floatX) == 8, finite_differences) {
    for (const Shape& s : {Shape{1, 9, 9, 2, 4, 0, 0}, Shape{2, 3, 7, 1, 8, 4, 0}}) {
        const Lent lent(1);
        Tensors t(s);
        t.run();
        auto loss = [&] {
            Tensors u = t;
            u.run();
            double sum = 0;
            for (size_t i = 0; i < u.out.size(); i++) sum += double(u.out[i]) * double(u.dout[i]);
            return sum;
        };
        const size_t C = size_t(s.NH) * s.D;
        auto check = [&](std::vector<floatX>& x, const std::vector<floatX>& dx, size_t stride) {
            for (size_t i = 0; i < x.size(); i += 3)
                if (i % stride < C) EXPECT_NEAR(dx[i], slope_of(x[i], loss), 1e-8);
        };
        check(t.q, t.dq, t.d.q_stride), check(t.k, t.dk, t.d.kv_stride), check(t.v, t.dv, t.d.kv_stride);
    }
}

TEST(little_scratch_is_an_error) {
    Tensors t({1, 1, 1, 1, 8, 0, 0});
    const Context before = context;
    cpu::lend_scratch(nullptr, 0);
    const Fatal f = test::fatal_of([&] { t.run(); });
    EXPECT(std::string(f.what()).find("scratch") != std::string::npos, "%s", f.what());
    context = before;
}

// Twice the scale are twice the queries: powers of two change no bit. 200 tokens: by BF16 products as well.
TEST(a_scale_is_a_factor_of_the_queries) {
    for (const Shape& s : {Shape{1, 200, 200, 2, 64, 0, 0}, Shape{2, 33, 40, 1, 16, 7, 0}}) {
        const Lent lent(2);
        Tensors plain(s), scaled(s), larger(s);
        scaled.d.scale = 2 / std::sqrt(double(s.D));
        for (floatX& x : larger.q) x = floatX(real(2 * double(x)));
        for (Tensors* t : {&plain, &scaled, &larger}) t->run();
        EXPECT(same_bits(scaled.out, larger.out) && same_bits(scaled.lse, larger.lse), "D %d: out", s.D);
        EXPECT(same_bits(scaled.dk, larger.dk) && same_bits(scaled.dv, larger.dv), "D %d: dk, dv", s.D);
        EXPECT(!same_bits(scaled.out, plain.out), "D %d: the scale has no effect", s.D);
        for (size_t row = 0; row < size_t(s.B) * s.Tq; row++)
            for (size_t c = 0; c < size_t(s.NH) * s.D; c++) {
                const size_t i = row * scaled.d.q_stride + c;
                EXPECT(double(scaled.dq[i]) == 2 * double(larger.dq[i]), "D %d: dq[%zu]", s.D, i);
            }
    }
}

}  // namespace PRECISION
