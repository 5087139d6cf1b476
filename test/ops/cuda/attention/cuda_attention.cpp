#include "llmc/ops/cuda/attention/attention.h"
#include "test/cuda_attention.h"

namespace PRECISION {

using Shape = TestedAttention;
static const Shape kShapes[] = {
    {1, 1, 1, 1, 8, 0, 0},    {3, 5, 5, 2, 16, 0, 0},     {2, 64, 64, 1, 64, 0, 0},
    {1, 65, 65, 2, 32, 0, 0}, {2, 130, 130, 3, 24, 0, 0}, {1, 100, 100, 1, 128, 0, 0},
    {1, 97, 97, 1, 80, 0, 0}, {1, 1, 77, 2, 64, 76, 0},   {2, 3, 40, 2, 32, 37, 0},
    {1, 5, 11, 1, 96, 10, 4}, {1, 70, 40, 1, 16, 3, 0},   {1, 40, 40, 1, 72, 0, 0},
    {2, 70, 70, 6, 24, 0, 0, 3}, {1, 65, 65, 4, 64, 0, 0, 4}, {2, 3, 40, 4, 16, 37, 0, 2},
    {1, 65, 65, 2, 32, 0, 0, 1, 1}, {1, 100, 100, 1, 24, 0, 0, 1, 40}, {1, 97, 97, 1, 80, 0, 0, 1, 33},
    {2, 70, 70, 6, 24, 0, 0, 3, 20}, {1, 5, 40, 2, 48, 35, 0, 1, 6},   {1, 40, 40, 1, 72, 0, 0, 1, 64},
    {1, 20, 90, 2, 112, 10, 0, 2, 8},  {2, 70, 70, 4, 24, 0, 0, 2, 0, 12},
    {1, 97, 97, 1, 72, 0, 0, 1, 20, 40},
    {1, 65, 65, 1, 136, 0, 0},         {2, 33, 33, 4, 256, 0, 0, 2},    {1, 3, 40, 2, 192, 37, 0, 2},
    {1, 20, 90, 2, 256, 80, 4, 1, 8},  {1, 40, 17, 1, 168, 0, 0},       {2, 40, 40, 2, 256, 0, 0, 2, 20, 12},
    {1, 30, 90, 2, 24, 40, 0, 2, 0, 12}, {2, 33, 99, 2, 64, 66, 0, 1, 25, 20},
    {1, 40, 80, 1, 160, 0, 0, 1, 0, 9},
    {1, 1, 1, 1, 256, 0, 0},           {1, 70, 70, 2, 160, 0, 0, 2, 0, 20},
};

struct Results {
    std::vector<floatX> out, dq, dk, dv;
    std::vector<real> lse, dbias;
    bool operator==(const Results& o) const {
        return same_bits(out, o.out) && same_bits(dq, o.dq) && same_bits(dk, o.dk) && same_bits(dv, o.dv) &&
               same_bits(lse, o.lse) && same_bits(dbias, o.dbias);
    }
};

static Results run(const Shape& s, double size = 1, double scale = 0, double times_q = 1) {
    AttentionInputs in(s, size);
    for (floatX& x : in.q) x = floatX(float(double(x) * times_q));
    const CudaScratch lent;
    DeviceDims dims(s);
    cuda::AttentionDims& d = dims.d;
    d.scale = scale;
    const OnDevice q(in.q), k(in.k), v(in.v), dout(in.dout), out(poisoned<floatX>(in.dout.size()));
    const OnDevice dq(poisoned<floatX>(in.q.size())), dk(poisoned<floatX>(in.k.size())),
        dv(poisoned<floatX>(in.v.size()));
    const OnDevice lse(poisoned<real>(size_t(s.B) * s.NH * s.Tq)), dbias(dbias_before(s));
    cuda::attention_forward(out, lse, q, k, v, d);
    cuda::attention_backward({.dq = dq, .dk = dk, .dv = dv, .dout = dout, .out = out, .lse = lse, .q = q,
                              .k = k, .v = v, .dbias = dbias}, d);
    return {out.host(), dq.host(), dk.host(), dv.host(), lse.host(), dbias.host()};
}

// The sums of absolute values of what each element sums, from the formulas.
struct Sums {
    Wide out, lse, dq, dk, dv;
    Sums(const Shape& s, const AttentionInputs& in, const Wide& lses) {
        const auto d = dims_of<oracle::AttentionDims>(s);
        const size_t C = size_t(s.NH) * s.D;
        out.assign(in.dout.size(), 0), lse.assign(lses.size(), 0), dq.assign(in.q.size(), 0);
        dk.assign(in.k.size(), 0), dv.assign(in.v.size(), 0);
        const double scale = 1 / std::sqrt(double(s.D));
        const AttentionByFormula formula(s, false);
        const auto abs_of = [](floatX x) { return std::fabs(double(x)); };
        for (int b = 0; b < s.B; b++)
            for (int h = 0; h < s.NH; h++)
                for (int t = 0; t < s.Tq; t++) {
                    const size_t o = (size_t(b) * s.Tq + t) * C + h * s.D,
                                 l = (size_t(b) * s.NH + h) * s.Tq + t,
                                 qi = (size_t(b) * s.Tq + t) * d.q_stride + h * s.D;
                    const int from = formula.first_key(b, t);
                    const int keys = std::min(s.Tk, s.q_offset + t - s.k_offset + 1);
                    const auto key = [&](int u) {
                        return (size_t(b) * s.Tk + u) * d.kv_stride + h / s.group * s.D;
                    };
                    Wide p(keys), dp(keys);
                    double delta = 0;
                    for (int u = from; u < keys; u++) {
                        double score = 0, size = 0;
                        for (int c = 0; c < s.D; c++) {
                            score += double(in.q[qi + c]) * double(in.k[key(u) + c]) * scale;
                            size += abs_of(in.q[qi + c]) * abs_of(in.k[key(u) + c]) * scale;
                            dp[u] += abs_of(in.dout[o + c]) * abs_of(in.v[key(u) + c]);
                        }
                        p[u] = std::exp(score - lses[l]), lse[l] = std::max(lse[l], size + 1);
                        for (int c = 0; c < s.D; c++) out[o + c] += p[u] * abs_of(in.v[key(u) + c]);
                    }
                    for (int c = 0; c < s.D; c++) delta += abs_of(in.dout[o + c]) * out[o + c];
                    for (int u = from; u < keys; u++)
                        for (int c = 0; c < s.D; c++) {
                            const double ds = p[u] * (dp[u] + delta) * scale;
                            dq[qi + c] += ds * abs_of(in.k[key(u) + c]),
                                dk[key(u) + c] += ds * abs_of(in.q[qi + c]);
                            dv[key(u) + c] += p[u] * abs_of(in.dout[o + c]);
                        }
                }
    }
};

TEST(matches_the_cpu) {
    for (const Shape& s : kShapes)
        for (const double size : {0.3, 1., 2.}) {
            if (size != 1 && (kAgain || s.Tq != 65)) continue;
            const AttentionInputs in(s, size);
            const Results got = run(s, size);
            auto d = dims_of<oracle::AttentionDims>(s);
            const test::PackedRows packed = s.rows();
            if (s.mean) d.documents = {packed.positions.data(), packed.ends.data()};
            const Wide q = wide(in.q), k = wide(in.k), v = wide(in.v), dout = wide(in.dout);
            Wide out(dout.size()), lse(got.lse.size()), dq(q.size()), dk(k.size()), dv(v.size());
            const OracleScratch lent;
            oracle::attention_forward(out.data(), lse.data(), q.data(), k.data(), v.data(), d);
            const Wide rounded = wide(got.out);  // what backward starts from
            oracle::attention_backward({.dq = dq.data(),
                                        .dk = dk.data(),
                                        .dv = dv.data(),
                                        .dout = dout.data(),
                                        .out = rounded.data(),
                                        .lse = lse.data(),
                                        .q = q.data(),
                                        .k = k.data(),
                                        .v = v.data()},
                                       d);
            const Sums sums(s, in, lse);
            const size_t C = size_t(s.NH) * s.D, qs = d.q_stride, ks = d.kv_stride;
            const size_t CK = C / size_t(s.group);
            const auto rows = [&](const auto& m, size_t stride) {
                return columns(m, stride, 0, stride == qs ? C : CK);
            };
            expect_column_sums(s, got.dbias, dbias_before(s), got.dq, got.dk, got.dv);
            EXPECT_CLOSE(got.out, out, sums.out, 2);
            EXPECT_CLOSE(got.lse, lse, sums.lse);
            EXPECT_CLOSE(rows(got.dq, qs), rows(dq, qs), rows(sums.dq, qs), 2);
            EXPECT_CLOSE(rows(got.dk, ks), rows(dk, ks), rows(sums.dk, ks), 2);
            EXPECT_CLOSE(rows(got.dv, ks), rows(dv, ks), rows(sums.dv, ks), 2);
            for (const auto& between :
                 {columns(got.dq, qs, C, qs), columns(got.dk, ks, CK, ks), columns(got.dv, ks, CK, ks)})
                for (const floatX x : between) EXPECT(std::isnan(double(x)), "written between the rows");
        }
}

TEST(order_changes_no_bit) {
    for (const int window : {0, 20}) {
        const Shape s = {1, 70, 70, 2, 40, 0, 0, 1, window};
        const Results first = run(s);
        in_every_order([&] { EXPECT(run(s) == first); });
    }
}

TEST(moves_no_more_than_its_floor) {
    for (const int D : {48, 64, 112}) EXPECT_FLOORS([=] { run({1, 96, 96, 1, D, 0, 0}); });
    EXPECT_FLOORS([=] { run({1, 60, 60, 1, 200, 0, 0}); });
    EXPECT_FLOORS([=] { run({1, 160, 160, 2, 48, 0, 0, 2}); });
    for (const auto& [D, window] : {std::pair{48, 1}, {64, 40}, {112, 64}})
        EXPECT_FLOORS([=] { run({1, 96, 96, 2, D, 0, 0, 2, window}); });
    EXPECT_FLOORS([=] { run({1, 60, 60, 2, 256, 0, 0, 2, 20}); });
    EXPECT_FLOORS([=] { run({1, 5, 160, 2, 48, 155, 0, 1, 40}); });
    EXPECT_FLOORS([=] { run({1, 96, 96, 2, 48, 0, 0, 2, 0, 40}); });
}

TEST(a_window_over_everything_changes_no_bit) {
    for (const int D : {40, 64}) {
        const Results plain = run({1, 70, 70, 2, D, 0, 0});
        EXPECT(run({1, 70, 70, 2, D, 0, 0, 1, 70}) == plain, "D %d", D);
        EXPECT(!(run({1, 70, 70, 2, D, 0, 0, 1, 69}) == plain), "D %d: the window has no effect", D);
    }
}

// Twice the scale are twice the queries: powers of two change no bit.
TEST(a_scale_is_a_factor_of_the_queries) {
    for (const Shape& s : {Shape{1, 65, 65, 2, 64, 0, 0}, Shape{2, 33, 40, 1, 16, 7, 0}}) {
        const Results scaled = run(s, 1, 2 / std::sqrt(double(s.D))), larger = run(s, 1, 0, 2);
        EXPECT(same_bits(scaled.out, larger.out) && same_bits(scaled.lse, larger.lse), "D %d: out", s.D);
        EXPECT(same_bits(scaled.dk, larger.dk) && same_bits(scaled.dv, larger.dv), "D %d: dk, dv", s.D);
        EXPECT(!same_bits(scaled.out, run(s).out), "D %d: the scale has no effect", s.D);
        const size_t C = size_t(s.NH) * s.D, stride = dims_of<cuda::AttentionDims>(s).q_stride;
        for (size_t row = 0; row < size_t(s.B) * s.Tq; row++)
            for (size_t c = 0; c < C; c++) {
                const size_t i = row * stride + c;
                EXPECT(float(scaled.dq[i]) == 2 * float(larger.dq[i]), "D %d: dq[%zu]", s.D, i);
            }
    }
}

}  // namespace PRECISION
