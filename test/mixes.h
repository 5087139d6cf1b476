// The shortcut and value embeddings by their formulas in FP64, for the tests of both backends.
#pragma once
#include <cmath>

#include "test/compare.h"

namespace PRECISION {

// residual: an addend to the stream, with a bias or not
struct MixShape { int N, C; bool residual = true, bias = true; };

struct MixInputs {
    MixShape s;
    std::vector<floatX> x, r, bias, x0, keep, add, dx, dx0;
    std::vector<real> dkeep, dadd;

    explicit MixInputs(const MixShape& s) : s(s) {
        const size_t n = size_t(s.N) * size_t(s.C);
        x = normals<floatX>(n, 1, 2), r = normals<floatX>(n, 2), x0 = normals<floatX>(n, 3);
        bias = normals<floatX>(size_t(s.C), 4), keep = {floatX(real(1.125))}, add = {floatX(real(-0.375))};
        dx = normals<floatX>(n, 5), dx0 = normals<floatX>(n, 6);
        dkeep = {real(3)}, dadd = {real(-2)};
    }
};

// in and out from x, r and bias; out and the gradients from the `in` that forward stored.
struct MixReference {
    Wide in, out, dx, dx0, dkeep, dadd, in_sums, out_sums, dx_sums, dx0_sums, dkeep_sums, dadd_sums;

    MixReference(const MixInputs& t, const std::vector<floatX>& kept)
        : dx0(wide(t.dx0)), dkeep(wide(t.dkeep)), dadd(wide(t.dadd)), dkeep_sums{std::fabs(dkeep[0])},
          dadd_sums{std::fabs(dadd[0])} {
        const double keep = double(t.keep[0]), add = double(t.add[0]);
        for (size_t i = 0; i < t.x.size(); i++) {
            const double x = double(t.x[i]), r = t.s.residual ? double(t.r[i]) : 0, x0 = double(t.x0[i]);
            const double bias = t.s.residual && t.s.bias ? double(t.bias[i % size_t(t.s.C)]) : 0;
            const double d = double(t.dx[i]), before = double(kept[i]);
            in.push_back(x + r + bias), in_sums.push_back(std::fabs(x) + std::fabs(r) + std::fabs(bias));
            out.push_back(keep * before + add * x0);
            out_sums.push_back(std::fabs(keep * before) + std::fabs(add * x0));
            dx.push_back(keep * d), dx_sums.push_back(std::fabs(keep * d));
            dx0_sums.push_back(std::fabs(dx0[i]) + std::fabs(add * d));
            dx0[i] += add * d;
            dkeep[0] += d * before, dkeep_sums[0] += std::fabs(d * before);
            dadd[0] += d * x0, dadd_sums[0] += std::fabs(d * x0);
        }
    }
};

struct ValueShape { int N, C, V, KV, D; };

struct ValueInputs {
    ValueShape s;
    size_t stride, first;       // of rows of q, k and v; of v in a row
    std::vector<int32_t> tokens;
    std::vector<floatX> qkv, dqkv, h, gatew, table, dh;
    std::vector<real> dgatew, dtable;

    explicit ValueInputs(const ValueShape& s) : s(s) {
        const size_t width = size_t(s.KV * s.D), N = size_t(s.N);
        first = 2 * width, stride = first + width;
        for (size_t n = 0; n < N; n++) tokens.push_back(int32_t(uniform(1, 2, n) * s.V));
        qkv = normals<floatX>(N * stride, 1), dqkv = normals<floatX>(N * stride, 2);
        h = normals<floatX>(N * size_t(s.C), 3), dh = normals<floatX>(h.size(), 4);
        gatew = normals<floatX>(size_t(s.KV) * kGateInputs, 5, 0.4);
        table = normals<floatX>(size_t(s.V) * width, 6), dgatew = normals<real>(gatew.size(), 7);
    }
    size_t width() const { return size_t(s.KV * s.D); }
};

struct ValueReference {
    Wide qkv, drows, dgates, dh, dgatew, qkv_sums, drows_sums, dgates_sums, dh_sums, dgatew_sums;

    explicit ValueReference(const ValueInputs& t)
        : qkv(wide(t.qkv)), dh(wide(t.dh)), dgatew(wide(t.dgatew)) {
        for (const double v : qkv) qkv_sums.push_back(std::fabs(v));
        for (const double v : dh) dh_sums.push_back(std::fabs(v));
        for (const double v : dgatew) dgatew_sums.push_back(std::fabs(v));
        for (int n = 0; n < t.s.N; n++)
            for (int head = 0; head < t.s.KV; head++) add(t, size_t(n), size_t(head));
    }
    void add(const ValueInputs& t, size_t n, size_t head) {
        const size_t D = size_t(t.s.D), C = size_t(t.s.C), column = head * D;
        const floatX* w = &t.gatew[head * kGateInputs];
        double dot = 0, dgate = 0, size = 0;
        for (size_t j = 0; j < kGateInputs; j++) dot += double(w[j]) * double(t.h[n * C + j]);
        const double gate = 3 / (1 + std::exp(-dot)), slope = gate * (1 - gate / 3);
        for (size_t i = 0; i < D; i++) {
            const double row = double(t.table[size_t(t.tokens[n]) * t.width() + column + i]);
            const size_t at = n * t.stride + t.first + column + i;
            const double dv = double(t.dqkv[at]);
            qkv[at] += gate * row, qkv_sums[at] += std::fabs(gate * row);
            drows.push_back(gate * dv), drows_sums.push_back(std::fabs(gate * dv));
            dgate += dv * row, size += std::fabs(dv * row);
        }
        dgates.push_back(dgate * slope), dgates_sums.push_back(2 * size * slope + 1e-3);
        for (size_t j = 0; j < kGateInputs; j++) {
            const double x = double(t.h[n * C + j]);
            dh[n * C + j] += dgate * slope * double(w[j]);
            dh_sums[n * C + j] += dgates_sums.back() * std::fabs(double(w[j]));
            dgatew[head * kGateInputs + j] += dgate * slope * x;
            dgatew_sums[head * kGateInputs + j] += dgates_sums.back() * std::fabs(x);
        }
    }
};

}  // namespace PRECISION
