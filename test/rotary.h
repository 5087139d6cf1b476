// The norms and rotations of queries and keys by their formulas in FP64, for the tests of both backends.
#pragma once
#include <cmath>

#include "test/compare.h"
#include "test/documents.h"

namespace PRECISION {

// mean: of the lengths of documents that rows pack; 0: none
struct RotaryShape { int N, T, NH, KV, D, t0, mean = 0; };

struct RotaryKind {
    QkNorm norm;
    bool gain, rotates;
};
inline constexpr RotaryKind kRotaryKinds[] = {
    {QkNorm::None, false, true},  {QkNorm::Before, true, true}, {QkNorm::Before, false, true},
    {QkNorm::After, true, true},  {QkNorm::After, false, true}, {QkNorm::Before, true, false},
    {QkNorm::After, false, false}};

struct RotaryInputs {
    RotaryShape s;
    RotaryKind kind;
    size_t stride;
    std::vector<floatX> qkv, dqkv, q_gain, k_gain;
    std::vector<real> table, dq_gain, dk_gain;
    std::vector<int32_t> positions;         // of documents

    RotaryInputs(const RotaryShape& s, const RotaryKind& k)
        : s(s), kind(k), positions(test::PackedRows(s.N / s.T, s.T, s.mean).positions) {
        const size_t D = size_t(s.D), rows = size_t(s.t0 + s.T);
        stride = size_t(s.NH + 2 * s.KV) * D + 16;
        qkv = normals<floatX>(size_t(s.N) * stride, 1, 2), dqkv = normals<floatX>(qkv.size(), 2);
        q_gain = normals<floatX>(D, 3, 0.3, 1), k_gain = normals<floatX>(D, 4, 0.3, 1);
        dq_gain = normals<real>(D, 5), dk_gain = normals<real>(D, 6);
        table.resize(rows * D);
        for (size_t t = 0; t < rows; t++)
            for (size_t i = 0; i < D / 2; i++) {
                const double angle = double(t) * std::pow(100., -2. * double(i) / s.D);
                table[t * D + i] = real(std::cos(angle)), table[t * D + D / 2 + i] = real(std::sin(angle));
            }
    }
    int position(int n) const { return s.mean ? positions[size_t(n)] : s.t0 + n % s.T; }
    size_t heads() const { return size_t(s.NH + s.KV); }
    size_t kept() const { return size_t(s.N) * heads() * size_t(s.D); }         // elements of `before`
    size_t at(int n, size_t h) const { return size_t(n) * stride + h * size_t(s.D); }
};

// eps is 1e-5.
struct RotaryReference {
    Wide qkv, qkv_sums, dqkv, dqkv_sums, dq_gain, dk_gain, dq_sums, dk_sums;

    explicit RotaryReference(const RotaryInputs& in)
        : qkv(wide(in.qkv)), qkv_sums(qkv.size(), 1), dqkv(wide(in.dqkv)), dqkv_sums(qkv.size(), 1),
          dq_gain(wide(in.dq_gain)), dk_gain(wide(in.dk_gain)), dq_sums(dq_gain), dk_sums(dk_gain) {
        for (Wide* w : {&dq_sums, &dk_sums})
            for (double& v : *w) v = std::fabs(v);
        for (int n = 0; n < in.s.N; n++)
            for (size_t h = 0; h < in.heads(); h++) head(in, n, h);
    }
    // {c x1 - s x2, c x2 + s x1}; direction -1: back
    static Wide rotated(const RotaryInputs& in, const Wide& x, int n, double direction) {
        if (!in.kind.rotates) return x;
        const size_t D = x.size(), half = D / 2, row = size_t(in.position(n)) * D;
        Wide y(D);
        for (size_t i = 0; i < half; i++) {
            const double c = double(in.table[row + i]), s = direction * double(in.table[row + half + i]);
            y[i] = x[i] * c - x[half + i] * s, y[half + i] = x[half + i] * c + x[i] * s;
        }
        return y;
    }
    void head(const RotaryInputs& in, int n, size_t h) {
        const size_t D = size_t(in.s.D), at = in.at(n, h);
        const bool key = h >= size_t(in.s.NH), normed = in.kind.norm != QkNorm::None;
        const bool before = in.kind.norm == QkNorm::Before;
        Wide x(qkv.begin() + ptrdiff_t(at), qkv.begin() + ptrdiff_t(at + D)), g(D, 1);
        Wide dy(dqkv.begin() + ptrdiff_t(at), dqkv.begin() + ptrdiff_t(at + D));
        if (in.kind.gain) g = wide(key ? in.k_gain : in.q_gain);
        double squares = 0, largest = 0, mean = 0;
        for (const double v : x) squares += v * v;
        const double rstd = normed ? 1 / std::sqrt(squares / double(D) + 1e-5) : 1;
        Wide xhat = before ? x : rotated(in, x, n, 1);
        if (before) dy = rotated(in, dy, n, -1);
        Wide y(D), dx(D);
        for (size_t i = 0; i < D; i++) {
            xhat[i] *= rstd, y[i] = xhat[i] * g[i], mean += g[i] * dy[i] * xhat[i] / double(D);
            if (!in.kind.gain) continue;
            (key ? dk_gain : dq_gain)[i] += dy[i] * xhat[i];
            (key ? dk_sums : dq_sums)[i] += 4 * std::fabs(dy[i] * xhat[i]) + 1;
        }
        for (size_t i = 0; i < D; i++) dx[i] = normed ? rstd * (g[i] * dy[i] - xhat[i] * mean) : dy[i];
        if (before) y = rotated(in, y, n, 1);
        else dx = rotated(in, dx, n, -1);
        for (size_t i = 0; i < D; i++)
            largest = std::max({largest, std::fabs(dx[i]), std::fabs(mean) * rstd});
        for (size_t i = 0; i < D; i++) {
            qkv[at + i] = y[i], qkv_sums[at + i] = 1 + std::fabs(y[i]);
            dqkv[at + i] = dx[i], dqkv_sums[at + i] = 4 * largest;
        }
    }
};

}  // namespace PRECISION
