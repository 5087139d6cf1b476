// Gradients of parameters accumulate (+=). Gradients of activations are set (=), except the residual
// stream's, which layernorm_backward adds to.
#include "llmc/model/block.h"

namespace PRECISION {

ops::AttentionDims Block::attention_dims(Span span) const {
    return {.B = span.B, .Tq = span.T, .Tk = span.t0 + span.T, .NH = d.NH, .D = d.D,
            .q_stride = size_t(3 * d.C), .kv_stride = size_t(3 * d.C), .q_offset = span.t0, .k_offset = 0};
}

void Block::activations(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s,
                        Span span) const {
    const int N = span.B * span.T, n = N / tp.size, C = d.C, F = d.F;
    const size_t nC = size_t(n) * C;

    ops::layernorm_forward({.x1 = a.x, .y = a.ln1, .mean = a.ln1_mean, .rstd = a.ln1_rstd,
                            .x = in.x, .r = in.r, .bias = in.bias, .w = w.ln1w, .b = w.ln1b}, n, C);
    const floatX* h = tp.all_gather(s.h, a.ln1, nC);
    ops::matmul_forward(a.qkv, h, w.qkvw, w.qkvb, N, C, 3 * C);
    ops::attention_forward(a.atty, a.lse, a.qkv, a.kv + C, a.kv + 2 * C, attention_dims(span));
    ops::matmul_forward(s.r, a.atty, w.attprojw, nullptr, N, C, C);
    const floatX* r = tp.reduce_scatter(s.slice, s.r, nC);

    ops::layernorm_forward({.x1 = a.x1, .y = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd,
                            .x = a.x, .r = r, .bias = w.attprojb, .w = w.ln2w, .b = w.ln2b}, n, C);
    h = tp.all_gather(s.h, a.ln2, nC);
    ops::matmul_gelu_forward(a.act, a.pre, h, w.fcw, w.fcb, N, C, F);
}

Stream Block::forward(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s,
                      Span span) const {
    const int N = span.B * span.T, n = N / tp.size, C = d.C, F = d.F;
    const size_t nC = size_t(n) * C;
    activations(w, a, in, s, span);
    ops::matmul_forward(s.r, a.act, w.fcprojw, nullptr, N, F, C);
    return {.x = a.x1, .r = tp.reduce_scatter(s.slice, s.r, nC), .bias = w.fcprojb};
}

void Block::backward(const BlockWeights& w, const BlockGrads& dw, const BlockActs& a, floatX* dx,
                     const BlockScratch& s, Span span) const {
    const int N = span.B * span.T, n = N / tp.size, C = d.C, F = d.F;
    const size_t nC = size_t(n) * C;

    ops::bias_backward(dw.fcprojb, dx, n, C);
    const floatX* dout = tp.all_gather(s.dh, dx, nC);
    ops::matmul_backward_weight(dw.fcprojw, dout, a.act, N, F, C);
    ops::matmul_gelu_backward_input(s.dpre, dout, w.fcprojw, a.pre, N, F, C);
    ops::bias_backward(dw.fcb, s.dpre, N, F);
    const floatX* h = tp.all_gather(s.h, a.ln2, nC);
    ops::matmul_backward_weight(dw.fcw, s.dpre, h, N, C, F);
    ops::matmul_backward_input(s.dh, s.dpre, w.fcw, N, C, F);
    ops::layernorm_backward(dx, dw.ln2w, dw.ln2b, tp.reduce_scatter(s.slice, s.dh, nC), a.x1, w.ln2w,
                            a.ln2_mean, a.ln2_rstd, n, C);

    ops::bias_backward(dw.attprojb, dx, n, C);
    dout = tp.all_gather(s.dh, dx, nC);
    ops::matmul_backward_weight(dw.attprojw, dout, a.atty, N, C, C);
    ops::matmul_backward_input(s.datty, dout, w.attprojw, N, C, C);
    ops::attention_backward({.dq = s.dqkv, .dk = s.dqkv + C, .dv = s.dqkv + 2 * C,
                             .dout = s.datty, .out = a.atty, .lse = a.lse,
                             .q = a.qkv, .k = a.qkv + C, .v = a.qkv + 2 * C}, attention_dims(span));
    ops::bias_backward(dw.qkvb, s.dqkv, N, 3 * C);
    h = tp.all_gather(s.h, a.ln1, nC);
    ops::matmul_backward_weight(dw.qkvw, s.dqkv, h, N, C, 3 * C);
    ops::matmul_backward_input(s.dh, s.dqkv, w.qkvw, N, C, 3 * C);
    ops::layernorm_backward(dx, dw.ln1w, dw.ln1b, tp.reduce_scatter(s.slice, s.dh, nC), a.x, w.ln1w,
                            a.ln1_mean, a.ln1_rstd, n, C);
}

void Block::recompute(const BlockWeights& w, BlockActs& a, const BlockScratch& s, Span span) const {
    const int N = span.B * span.T, n = N / tp.size, C = d.C, F = d.F;
    if (level == Recompute::Block) activations(w, a, {.x = a.x}, s, span);
    if (level == Recompute::Selective) {
        ops::layernorm_forward({.x1 = nullptr, .y = a.ln1, .mean = a.ln1_mean, .rstd = a.ln1_rstd,
                                .x = a.x, .r = nullptr, .bias = nullptr, .w = w.ln1w, .b = w.ln1b}, n, C);
        ops::layernorm_forward({.x1 = nullptr, .y = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd,
                                .x = a.x1, .r = nullptr, .bias = nullptr, .w = w.ln2w, .b = w.ln2b}, n, C);
        ops::gelu_forward(a.act, a.pre, size_t(N) * F);
    }
}

void add_block_scratch(Arena& arena, BlockScratch& s, const Dims& d, size_t N, size_t n, bool backward,
                       const Axis& tp) {
    const size_t C = size_t(d.C), F = size_t(d.F);
    s = {};
    arena.add("block scratch", &s.r, N * C);
    arena.add("block scratch", &s.h, tp.staging(N * C));
    arena.add("block scratch", &s.slice, tp.staging(n * C));
    if (!backward) return;
    arena.add("block scratch", &s.dh, N * C);
    arena.add("block scratch", &s.dqkv, N * 3 * C);
    arena.add("block scratch", &s.datty, N * C);
    arena.add("block scratch", &s.dpre, N * F);
}

}  // namespace PRECISION
