// Gradients of parameters accumulate (+=). Gradients of activations are set (=), except the residual
// stream's, which layernorm_backward adds to.
#include "llmc/model/block.h"

namespace PRECISION {

ops::AttentionDims Block::attention_dims(Span span) const {
    return {.B = span.B, .Tq = span.T, .Tk = span.t0 + span.T - unseen(span), .NH = d.NH, .D = d.D,
            .q_stride = size_t(d.W), .kv_stride = size_t(d.W), .q_offset = span.t0, .k_offset = unseen(span),
            .scale = d.kind.scale, .key_heads = d.KV, .window = span.window, .documents = span.documents};
}

// Beside queries, qkv has the keys and values of the span's own tokens.
void Block::attend(const BlockActs& a, Span span) const {
    if (span.shared) return attend_segments(a, span);
    const floatX* keys = a.kv + size_t(unseen(span)) * size_t(d.W) + d.A;
    ops::attention_forward(a.atty, a.lse, a.qkv, keys, keys + d.K, attention_dims(span));
}

void Block::attend_segments(const BlockActs& a, Span span) const {
    const SharedKeys& shared = *span.shared;
    size_t row = 0, sequence = 0;
    for (const Segment& s : shared.segments) {
        ops::AttentionDims dims = attention_dims({.B = s.B, .T = s.T, .t0 = s.t0, .window = span.window,
                                                  .shared = span.shared});
        const floatX* const qkv = a.qkv + row * size_t(d.W);
        const floatX* keys = qkv + d.A;
        if (s.t0) {
            ops::join_rows(shared.joined, {.kept = shared.kept + size_t(s.kept) * size_t(2 * d.K),
                                           .from = shared.from + sequence, .own = keys,
                                           .stride = size_t(d.W), .B = s.B, .before = s.t0, .T = s.T,
                                           .width = 2 * d.K});
            keys = shared.joined;
            dims.kv_stride = size_t(2 * d.K);
        }
        ops::attention_forward(a.atty + row * size_t(d.A), a.lse + row * size_t(d.NH), qkv, keys, keys + d.K,
                               dims);
        row += size_t(s.B) * size_t(s.T);
        sequence += size_t(s.B);
    }
}

ops::Rotary Block::rotary(const BlockWeights& w, const BlockActs& a, Span span) const {
    return {.qkv = a.qkv, .before = a.qk, .table = rotary_table, .q_gain = w.qnw, .k_gain = w.knw,
            .norm = d.kind.qk_norm, .eps = eps(), .N = span.B * span.T, .T = span.T, .NH = d.NH, .KV = d.KV,
            .D = d.D, .stride = size_t(d.W), .t0 = span.t0, .positions = span.documents.positions};
}

void Block::mix(const BlockWeights& w, const BlockActs& a, Stream in, Span span) const {
    ops::shortcut_forward({.out = a.x, .in = a.in, .x = in.x, .r = in.r, .bias = in.bias, .x0 = span.x0,
                           .keep = w.residw, .add = w.x0w}, Slice(tp, span.B * span.T).mine, d.C);
}

ops::ValueRows Block::values(const BlockWeights& w, floatX* qkv, const floatX* h, Span span) const {
    return {.v = qkv + d.A + d.K, .h = h, .gatew = w.gatew, .table = w.wve, .tokens = span.tokens,
            .N = span.B * span.T, .C = d.C, .V = d.V, .KV = d.KV, .D = d.D, .stride = size_t(d.W)};
}

void Block::attention_input(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s,
                            Span span) const {
    const int N = span.B * span.T, C = d.C;
    const auto [n, mine] = Slice(tp, N);
    if (d.kind.shortcut) {
        mix(w, a, in, span);
        in = {.x = a.x};
    }
    ops::layernorm_forward({.x1 = a.x, .y = a.ln1, .mean = a.ln1_mean, .rstd = a.ln1_rstd,
                            .x = in.x, .r = in.r, .bias = in.bias, .w = w.ln1w, .b = w.ln1b, .eps = eps()},
                           mine, C);
    a.h1 = tp.all_gather(s.h, a.ln1, size_t(n) * size_t(C));
    ops::matmul_forward(a.qkv, a.h1, w.qkvw, w.qkvb, N, C, d.W);
    if (w.wve) ops::values_forward(values(w, a.qkv, a.h1, span));
    if (d.kind.rotary()) ops::rotary_forward(rotary(w, a, span));
}

void Block::activations(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s, Span span,
                        bool again) const {
    const int N = span.B * span.T, C = d.C, A = d.A, F = d.F;
    const Activation f = d.kind.activation;
    const auto [n, mine] = Slice(tp, N);
    const size_t nC = size_t(n) * C;

    attention_input(w, a, in, s, span);
    attend(a, span);
    Stream middle = {.x = a.x1};
    if (!again || !keeps_x1(d)) {
        ops::matmul_forward(s.r, a.atty, w.attprojw, nullptr, N, A, C);
        middle = {.x = a.x, .r = tp.reduce_scatter(s.slice, s.r, nC), .bias = w.attprojb};
    }

    ops::layernorm_forward({.x1 = a.x1, .y = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd, .x = middle.x,
                            .r = middle.r, .bias = middle.bias, .w = w.ln2w, .b = w.ln2b, .eps = eps()},
                           mine, C);
    a.h2 = tp.all_gather(s.h2 ? s.h2 : s.h, a.ln2, nC);
    ops::matmul_activation_forward(a.act, a.pre, a.h2, w.fcw, w.fcb, f, N, C, F);
}

Stream Block::forward(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s,
                      Span span) const {
    const int N = span.B * span.T;
    activations(w, a, in, s, span, false);
    ops::matmul_forward(s.r, a.act, w.fcprojw, nullptr, N, d.F, d.C);
    const floatX* bias = w.fcprojb ? s.bias : nullptr;
    if (bias) ops::copy(s.bias, w.fcprojb, size_t(d.C));        // read when these weights may be gone
    return {.x = a.x1, .r = tp.reduce_scatter(s.slice, s.r, size_t(Slice(tp, N).n) * d.C), .bias = bias};
}

// The rows' gradients wait in s.datty, which is dead by then: the encoder adds them up.
void Block::values_backward(const BlockWeights& w, const BlockGrads& dw, const floatX* h,
                            const BlockScratch& s, Span span) const {
    const int N = span.B * span.T;
    ops::values_backward({.drows = s.datty, .dgates = s.dgates, .dh = s.dh, .dgatew = dw.gatew},
                         values(w, s.dqkv, h, span));
    ops::encoder_backward(dw.wve, nullptr, s.datty, {.tokens = span.tokens, .v0 = 0, .V = d.V, .N = N,
                                                     .T = span.T, .C = d.K, .t0 = 0});
}

void Block::backward(const BlockWeights& w, const BlockGrads& dw, const BlockActs& a, floatX* dx, floatX* dx0,
                     const BlockScratch& s, Span span) const {
    const int N = span.B * span.T, C = d.C, A = d.A, F = d.F, P = d.P();
    const Activation f = d.kind.activation;
    const auto [n, mine] = Slice(tp, N);
    const size_t nC = size_t(n) * C;
    const bool whole = level == Recompute::Block;           // recomputation has just gathered h1 and h2

    ops::bias_backward(dw.fcprojb, dx, mine, C);
    const floatX* dout = tp.all_gather(s.dh, dx, nC);
    ops::matmul_backward_weight(dw.fcprojw, dout, a.act, N, F, C);
    floatX* dact = a.act;                                   // read for the last time
    ops::matmul_activation_backward_input(s.dpre, dact, dout, w.fcprojw, a.pre, f, N, F, C);
    const floatX* h = whole ? a.h2 : tp.all_gather(s.h, a.ln2, nC);
    ops::matmul_backward_weight_bias(dw.fcw, dw.fcb, s.dpre, h, N, C, P);
    ops::matmul_backward_input(s.dh, s.dpre, w.fcw, N, C, P);
    ops::layernorm_backward(dx, dw.ln2w, dw.ln2b, tp.reduce_scatter(s.slice, s.dh, nC), a.x1, w.ln2w,
                            a.ln2_mean, a.ln2_rstd, mine, C);

    ops::bias_backward(dw.attprojb, dx, mine, C);
    dout = tp.all_gather(s.dh, dx, nC);
    ops::matmul_backward_weight(dw.attprojw, dout, a.atty, N, A, C);
    ops::matmul_backward_input(s.datty, dout, w.attprojw, N, A, C);
    ops::attention_backward({.dq = s.dqkv, .dk = s.dqkv + A, .dv = s.dqkv + A + d.K,
                             .dout = s.datty, .out = a.atty, .lse = a.lse,
                             .q = a.qkv, .k = a.qkv + A, .v = a.qkv + A + d.K}, attention_dims(span));
    if (d.kind.rotary()) ops::rotary_backward(s.dqkv, dw.qnw, dw.knw, rotary(w, a, span));
    h = whole ? a.h1 : tp.all_gather(s.h, a.ln1, nC);
    ops::matmul_backward_weight_bias(dw.qkvw, dw.qkvb, s.dqkv, h, N, C, d.W);
    ops::matmul_backward_input(s.dh, s.dqkv, w.qkvw, N, C, d.W);
    if (w.wve) values_backward(w, dw, h, s, span);
    ops::layernorm_backward(dx, dw.ln1w, dw.ln1b, tp.reduce_scatter(s.slice, s.dh, nC), a.x, w.ln1w,
                            a.ln1_mean, a.ln1_rstd, mine, C);
    if (d.kind.shortcut)
        ops::shortcut_backward({.dx = dx, .dx0 = dx0, .dkeep = dw.residw, .dadd = dw.x0w}, a.in, span.x0,
                               w.residw, w.x0w, mine, C);
}

void Block::recompute(const BlockWeights& w, BlockActs& a, const BlockScratch& s, Span span) const {
    const int N = span.B * span.T, mine = Slice(tp, N).mine, C = d.C;
    const Stream in = {.x = d.kind.shortcut ? a.in : a.x};
    if (level == Recompute::Block) activations(w, a, in, s, span, true);
    if (level == Recompute::Selective) {
        if (d.kind.shortcut) mix(w, a, in, span);
        ops::layernorm_forward({.x1 = nullptr, .y = a.ln1, .mean = a.ln1_mean, .rstd = a.ln1_rstd,
                                .x = a.x, .r = nullptr, .bias = nullptr, .w = w.ln1w, .b = w.ln1b,
                                .eps = eps()}, mine, C);
        ops::layernorm_forward({.x1 = nullptr, .y = a.ln2, .mean = a.ln2_mean, .rstd = a.ln2_rstd,
                                .x = a.x1, .r = nullptr, .bias = nullptr, .w = w.ln2w, .b = w.ln2b,
                                .eps = eps()}, mine, C);
        ops::activation_forward(a.act, a.pre, d.kind.activation, N, d.F);
    }
}

void add_block_scratch(ArenaOf arena, BlockScratch& s, const Dims& d, size_t N, size_t n, bool backward,
                       Recompute level, const Axis& tp) {
    const size_t C = size_t(d.C), A = size_t(d.A), all = n * size_t(tp.size);
    s = {};
    arena.add("block scratch", &s.r, all * C);
    arena.add("block scratch", &s.h, tp.staging(all * C));
    if (backward && level == Recompute::Block) arena.add("block scratch", &s.h2, tp.staging(all * C));
    arena.add("block scratch", &s.slice, tp.staging(n * C));
    arena.add("block scratch", &s.bias, C);
    if (!backward) return;
    arena.add("block scratch", &s.dh, all * C);
    arena.add("block scratch", &s.dqkv, N * size_t(d.W));
    arena.add("block scratch", &s.datty, N * A);
    arena.add("block scratch", &s.dpre, N * size_t(d.P()));
    if (d.kind.values) arena.add("block scratch", &s.dgates, N * size_t(d.KV));
}

}  // namespace PRECISION
