// Rows are spread over threads; the gradient of the gates' matrix has a thread for a row of it, which adds
// the tokens in their order.
#include <algorithm>
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/ops/cpu/vectors.h"

namespace PRECISION {
namespace cpu {

static real value_gate(const floatX* h, const floatX* w) {
    real dot = 0;
    for (int j = 0; j < kGateInputs; j++) dot += real(w[j]) * real(h[j]);
    return 3 / (1 + std::exp(-dot));
}

void values_forward(const ValueRows& t) {
    if (walked(values_forward_cost, t)) return;
    #pragma omp parallel for schedule(static) num_threads(context.threads)
    for (int n = 0; n < t.N; n++)
        for (int head = 0; head < t.KV; head++) {
            const real gate = value_gate(t.h + size_t(n) * size_t(t.C), t.gatew + head * kGateInputs);
            const size_t column = size_t(head) * size_t(t.D);
            const floatX* row = t.table + size_t(t.tokens[n]) * t.width() + column;
            floatX* v = t.v + size_t(n) * t.stride + column;
            for (int i = 0; i < t.D; i += W)
                store(v + i, load(v + i, t.D - i) + gate * load(row + i, t.D - i), t.D - i);
        }
}

// Of a token: its row of drows, dgates and dh.
static void backward_token(const ValueRowsGrads& g, const ValueRows& t, size_t n) {
    const floatX* h = t.h + n * size_t(t.C);
    real* const dgates = g.dgates + n * size_t(t.KV);
    for (int head = 0; head < t.KV; head++) {
        const size_t column = size_t(head) * size_t(t.D);
        const floatX* row = t.table + size_t(t.tokens[n]) * t.width() + column;
        const floatX* dv = t.v + n * t.stride + column;
        floatX* drow = g.drows + n * t.width() + column;
        const real gate = value_gate(h, t.gatew + head * kGateInputs);
        const real dgate = sum<real>(t.D, [&](int i, int left) {
            return load(dv + i, left) * load(row + i, left);
        });
        for (int i = 0; i < t.D; i += W) store(drow + i, gate * load(dv + i, t.D - i), t.D - i);
        dgates[head] = dgate * gate * (1 - gate / 3);
    }
    floatX* dh = g.dh + n * size_t(t.C);
    for (int j = 0; j < kGateInputs; j++) {
        real sum = 0;
        for (int head = 0; head < t.KV; head++) sum += dgates[head] * real(t.gatew[head * kGateInputs + j]);
        dh[j] = floatX(real(dh[j]) + sum);
    }
}

void values_backward(const ValueRowsGrads& g, const ValueRows& t) {
    if (walked(values_backward_cost, t)) return;
    #pragma omp parallel num_threads(context.threads)
    {
        #pragma omp for schedule(static)
        for (int n = 0; n < t.N; n++) backward_token(g, t, size_t(n));
        #pragma omp for schedule(static)
        for (int head = 0; head < t.KV; head++)
            for (size_t n = 0; n < size_t(t.N); n++)
                for (int j = 0; j < kGateInputs; j++)
                    g.dgatew[head * kGateInputs + j] +=
                        g.dgates[n * size_t(t.KV) + size_t(head)] * real(t.h[n * size_t(t.C) + size_t(j)]);
    }
}

}  // namespace cpu
}  // namespace PRECISION
