// Attention of CPUs by its formulas, for the tests of its shapes and of its windows.
#pragma once
#include "test/compare.h"

namespace PRECISION {

using cpu::AttentionDims;

// group: of query heads
struct Shape { int B, Tq, Tk, NH, D, q_offset, k_offset, group = 1, window = 0; };

// q, k and v in one packed matrix where queries and keys are the same rows, else in two.
struct Tensors {
    AttentionDims d;
    std::vector<floatX> q, k, v, dout, out, dq, dk, dv;
    std::vector<real> lse, dbias;

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
             .key_heads = s.NH / s.group,
             .window = s.window};
        q = normals<floatX>(q_rows * d.q_stride, 1, size), k = normals<floatX>(k_rows * d.kv_stride, 2, size);
        v = normals<floatX>(k_rows * d.kv_stride, 3), dout = normals<floatX>(q_rows * C, 4);
        out = poisoned<floatX>(q_rows * C), lse = poisoned<real>(size_t(s.B) * s.NH * s.Tq);
        dbias = normals<real>(C + 2 * CK, 7);
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
                                 .v = v.data(),
                                 .dbias = dbias.data()},
                                d);
    }
};

// By the formulas, with the sum of the absolute terms of each element. delta is of the stored `out`, the
// input of the backward pass. spread: an error e of a score is a relative error e of p; for large scores, the
// products of the score count as terms of p.
struct AttentionReference {
    AttentionDims d;
    bool spread;
    Wide stored, q, k, v, dout, out, lse, dq, dk, dv, out_sums, lse_sums, dq_sums, dk_sums, dv_sums;

    AttentionReference(const Tensors& t, bool spread)
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
        const int position = d.q_offset + i - d.k_offset;
        const int from = d.window ? std::max(0, position + 1 - d.window) : 0;
        const int keys = std::min(d.Tk, position + 1) - from;       // the first is row `from`
        Wide s(keys), p(keys), sizes(keys), dp(keys), dp_sums(keys);
        auto key = [&](int u) { return (size_t(b) * d.Tk + from + u) * d.kv_stride + h / d.group() * d.D; };
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

inline void expect_the_reference(const Shape& s, double size) {
    const Lent lent(2);
    Tensors t(s, size);
    t.run();
    const AttentionReference r(t, size > 2);
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
    std::vector<real> dbias = normals<real>(C + 2 * width(ks), 7);
    real* at = dbias.data();
    for (const auto& [m, stride] : {std::pair{&t.dq, qs}, {&t.dk, ks}, {&t.dv, ks}}) {
        const auto rows = inside(*m, stride);
        cpu::bias_backward(at, rows.data(), int(rows.size() / width(stride)), int(width(stride)));
        at += width(stride);
    }
    EXPECT(same_bits(t.dbias, dbias), "the bias's gradient is no sum of dq, dk and dv");
    untouched(t.dq, qs, "dq"), untouched(t.dk, ks, "dk"), untouched(t.dv, ks, "dv");
}

}  // namespace PRECISION
