// What the tests of CUDA's attention share: shapes, inputs, and attention by its formulas.
#pragma once
#include "test/cuda.h"
#include "test/documents.h"

namespace PRECISION {

// group: heads of queries that share a head of keys; mean: of the documents' lengths, 0: none
struct TestedAttention {
    int B, Tq, Tk, NH, D, q_offset, k_offset, group = 1, window = 0, mean = 0;

    test::PackedRows rows() const { return {B, Tk, mean, q_offset - k_offset, Tq}; }
};

// Rows of q lie further apart than heads need, as do those of k and v.
template <class Dims> Dims dims_of(const TestedAttention& s) {
    const size_t C = size_t(s.NH) * s.D, CK = C / size_t(s.group);
    return {.B = s.B, .Tq = s.Tq, .Tk = s.Tk, .NH = s.NH, .D = s.D, .q_stride = C + 8, .kv_stride = 2 * CK,
            .q_offset = s.q_offset, .k_offset = s.k_offset, .key_heads = s.NH / s.group,
            .window = s.window};
}

// dbias is `before` and the column sums of the gradients as they were stored.
inline void expect_column_sums(const TestedAttention& s, const std::vector<real>& dbias,
                               const std::vector<real>& before, const std::vector<floatX>& dq,
                               const std::vector<floatX>& dk, const std::vector<floatX>& dv) {
    const auto d = dims_of<oracle::AttentionDims>(s);
    const size_t C = size_t(s.NH) * s.D, CK = C / size_t(s.group);
    Wide want = wide(before), sums = absolute(want);
    const auto add = [&](size_t at, const std::vector<floatX>& m, size_t stride, size_t width) {
        const Wide rows = wide(columns(m, stride, 0, width));
        const int N = int(rows.size() / width);
        oracle::bias_backward(want.data() + at, rows.data(), N, int(width));
        oracle::bias_backward(sums.data() + at, absolute(rows).data(), N, int(width));
    };
    add(0, dq, d.q_stride, C);
    add(C, dk, d.kv_stride, CK);
    add(C + CK, dv, d.kv_stride, CK);
    EXPECT_CLOSE(dbias, want, sums);
}
inline std::vector<real> dbias_before(const TestedAttention& s) {
    return normals<real>(size_t(s.NH + 2 * s.NH / s.group) * s.D, 7);
}

// dims_of() with documents, in the device's memory.
struct DeviceDims {
    cuda::AttentionDims d;
    OnDevice<int32_t> positions, ends;

    explicit DeviceDims(const TestedAttention& s)
        : d(dims_of<cuda::AttentionDims>(s)), positions(s.rows().positions), ends(s.rows().ends) {
        if (s.mean) d.documents = {positions, ends};
    }
};

struct AttentionInputs {
    std::vector<floatX> q, k, v, dout;
    AttentionInputs(const TestedAttention& s, double size) {
        const auto d = dims_of<cuda::AttentionDims>(s);
        const size_t q_rows = size_t(s.B) * s.Tq, k_rows = size_t(s.B) * s.Tk;
        q = normals<floatX>(q_rows * d.q_stride, 1, size), k = normals<floatX>(k_rows * d.kv_stride, 2, size);
        v = normals<floatX>(k_rows * d.kv_stride, 3, size), dout = normals<floatX>(q_rows * s.NH * s.D, 4);
    }
};

// Attention in fp64; or, where `round` rounds, with P, dS and all outputs rounded to BF16 as a plain program
// with tensor cores would. Backward starts from `rounded`, the out of forward, and from the exact lse.
struct AttentionByFormula {
    const TestedAttention s;
    const cuda::AttentionDims d;
    const bool round;
    const test::PackedRows rows = s.rows();
    Wide out, lse, dq, dk, dv;

    AttentionByFormula(const TestedAttention& shape, bool round)
        : s(shape), d(dims_of<cuda::AttentionDims>(shape)), round(round) {}

    double maybe_rounded(double x) const { return round ? double(bfloat16(float(x))) : x; }
    size_t outputs(int b, int h, int t) const { return ((size_t(b) * s.Tq + t) * s.NH + h) * s.D; }
    size_t queries(int b, int h, int t) const { return (size_t(b) * s.Tq + t) * d.q_stride + h * s.D; }
    size_t keys(int b, int h, int u) const {
        return (size_t(b) * s.Tk + u) * d.kv_stride + h / s.group * s.D;
    }
    // Of the window and the document of query t.
    int first_key(int b, int t) const {
        const int first = s.window ? s.q_offset + t - s.k_offset + 1 - s.window : 0;
        return std::max(first, rows.begin(b, t));
    }
    template <class F> void for_queries(F f) const {
        for (int b = 0; b < s.B; b++)
            for (int h = 0; h < s.NH; h++)
                for (int t = 0; t < s.Tq; t++)
                    f(b, h, t, first_key(b, t), std::min(s.Tk, s.q_offset + t - s.k_offset + 1));
    }
    double dot(const Wide& a, size_t i, const Wide& b, size_t j) const {
        double sum = 0;
        for (int c = 0; c < s.D; c++) sum += a[i + c] * b[j + c];
        return sum;
    }
    void add(Wide& to, size_t i, double weight, const Wide& from, size_t j) const {
        for (int c = 0; c < s.D; c++) to[i + c] += weight * from[j + c];
    }

    void forward(const Wide& q, const Wide& k, const Wide& v) {
        out.assign(size_t(s.B) * s.Tq * s.NH * s.D, 0), lse.assign(size_t(s.B) * s.NH * s.Tq, 0);
        const double scale = 1 / std::sqrt(double(s.D));
        for_queries([&](int b, int h, int t, int first, int seen) {
            Wide p(seen, -INFINITY);
            double max = -INFINITY, sum = 0;
            for (int u = first; u < seen; u++) {
                p[u] = scale * dot(q, queries(b, h, t), k, keys(b, h, u));
                max = std::max(max, p[u]);
            }
            for (double& x : p) sum += x = std::exp(x - max);
            for (int u = first; u < seen; u++)
                add(out, outputs(b, h, t), maybe_rounded(p[u]) / sum, v, keys(b, h, u));
            lse[(size_t(b) * s.NH + h) * s.Tq + t] = max + std::log(sum);
        });
        for (double& x : out) x = maybe_rounded(x);
    }
    void backward(const Wide& q, const Wide& k, const Wide& v, const Wide& dout, const Wide& rounded,
                  const Wide& of_forward) {
        dq.assign(q.size(), 0), dk.assign(k.size(), 0), dv.assign(v.size(), 0);
        const double scale = 1 / std::sqrt(double(s.D));
        for_queries([&](int b, int h, int t, int first, int seen) {
            const size_t i = queries(b, h, t), o = outputs(b, h, t);
            const double delta = dot(dout, o, rounded, o);
            for (int u = first; u < seen; u++) {
                const size_t j = keys(b, h, u);
                const double p = std::exp(scale * dot(q, i, k, j) -
                                          of_forward[(size_t(b) * s.NH + h) * s.Tq + t]);
                const double ds = scale * maybe_rounded(p * (dot(dout, o, v, j) - delta));
                add(dq, i, ds, k, j), add(dk, j, ds, q, i), add(dv, j, maybe_rounded(p), dout, o);
            }
        });
        for (Wide* m : {&dq, &dk, &dv})
            for (double& x : *m) x = maybe_rounded(x);
    }
};

}  // namespace PRECISION
