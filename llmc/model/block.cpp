// Gradients of parameters accumulate (+=). Gradients of activations are set (=), except the residual
// stream's, which layernorm_backward adds to.
#include "llmc/model/block.h"

#include "llmc/comm/flip_here.h"

namespace PRECISION::inline model {
namespace {

// A call of a block for the tokens of a span. Of each half: forward, which computes every input of backward;
// its last product, whose result is the addend to the stream; backward.
struct Call {
    const Block& block;
    const BlockWeights& w;
    BlockActs& a;
    const BlockScratch& s;
    const Span span;

    const Dims& d = block.d;
    const Axis& tp = block.tp;
    const int N = span.N(), n = Slice(tp, N).n, mine = Slice(tp, N).mine;
    const int C = d.C, A = d.A, F = d.F, W = d.W;
    const size_t nC = size_t(n) * size_t(C);
    const Activation f = d.kind.activation;
    const LinearCall product = {s.inputs, tp, N};
    const bool whole = block.level == Recompute::Block;     // recomputation has just gathered h1 and h2
    const bool now = !block.halves;         // backward adds the gradients of matrices

    // -----------------------------------------------------------------------------------------------------
    // arguments of ops

    // The matrices. Biases of attproj and fcproj are terms of the returned Stream.
    const CodedMatrix* codes_of(CodedMatrix BlockCodes::* matrix) const {
        return s.codes ? &(s.codes->*matrix) : nullptr;
    }
    Linear wqkv() const { return {w.qkvw, w.qkvb, C, W, Split::Rows, codes_of(&BlockCodes::qkvw)}; }
    Linear wattproj() const {
        return {w.attprojw, nullptr, A, C, Split::Cols, codes_of(&BlockCodes::attprojw)};
    }
    Linear wfc() const { return {w.fcw, w.fcb, C, d.P(), Split::Rows, codes_of(&BlockCodes::fcw)}; }
    Linear wfcproj() const { return {w.fcprojw, nullptr, F, C, Split::Cols, codes_of(&BlockCodes::fcprojw)}; }

    // Rows of the cache before the window of a single query, in whole blocks of keys, which attention skips.
    int unseen() const {
        const bool single = span.T == 1 && span.B == 1 && !span.shared;
        const int before = single && span.window > 0 ? span.t0 - span.window + 1 : 0;
        return std::max(before, 0) / 64 * 64;
    }

    ops::AttentionDims attention_dims(int B, int T, int t0) const {
        const int first = unseen();
        return {.B = B, .Tq = T, .Tk = t0 + T - first, .NH = d.NH, .D = d.D, .q_stride = size_t(W),
                .kv_stride = size_t(W), .q_offset = t0, .k_offset = first, .scale = d.kind.scale,
                .key_heads = d.KV, .window = span.window, .documents = span.documents};
    }

    // Beside queries, qkv has the keys and values of the span's own tokens.
    void attend() const {
        const floatX* keys = a.kv + size_t(unseen()) * size_t(W) + A;
        block.attention.forward(a.atty, a.lse, a.qkv, keys, keys + d.K,
                                attention_dims(span.B, span.T, span.t0));
    }

    void attend_segments() const {
        const SharedKeys& shared = *span.shared;
        size_t row = 0, sequence = 0;
        for (const Segment& g : shared.segments) {
            ops::AttentionDims dims = attention_dims(g.B, g.T, g.t0);
            const floatX* const qkv = a.qkv + row * size_t(W);
            const floatX* keys = qkv + A;
            if (g.t0) {
                const floatX* const kept = shared.kept + size_t(g.kept) * size_t(2 * d.K);
                ops::join_rows(shared.joined, {.kept = kept, .from = shared.from + sequence, .own = keys,
                                               .stride = size_t(W), .B = g.B, .before = g.t0, .T = g.T,
                                               .width = 2 * d.K});
                keys = shared.joined;
                dims.kv_stride = size_t(2 * d.K);
            }
            ops::attention_forward(a.atty + row * size_t(A), a.lse + row * size_t(d.NH), qkv, keys,
                                   keys + d.K, dims);
            row += size_t(g.B) * size_t(g.T);
            sequence += size_t(g.B);
        }
    }

    ops::Rotary rotary() const {
        return {.qkv = a.qkv, .before = a.qk, .table = block.rotary_table, .q_gain = w.qnw, .k_gain = w.knw,
                .norm = d.kind.qk_norm, .eps = real(d.kind.eps), .N = N, .T = span.T, .NH = d.NH, .KV = d.KV,
                .D = d.D, .stride = size_t(W), .t0 = span.t0, .positions = span.positions};
    }

    // Of value embeddings. qkv: a.qkv, or its gradient. h: the norm of all tokens.
    ops::ValueRows values(floatX* qkv, const floatX* h) const {
        return {.v = qkv + A + d.K, .h = h, .gatew = w.gatew, .table = w.wve, .tokens = span.tokens, .N = N,
                .C = C, .V = d.V, .KV = d.KV, .D = d.D, .stride = size_t(W)};
    }

    // s.datty is dead by then.
    void values_backward(const BlockGrads& dw, const floatX* h) const {
        floatX* const drows = now ? s.datty : a.dvalues;
        ops::values_backward({.drows = drows, .dgates = s.dgates, .dh = s.dh, .dgatew = dw.gatew},
                             values(s.dqkv, h));
        if (now) add_wve(dw, drows);
    }

    // The norm of a product's input.
    void coded_norm(ops::Layernorm t) const {
        t.amaxes = s.inputs.own_amaxes(tp);
        ops::layernorm_forward(t, mine, C);
    }

    // -----------------------------------------------------------------------------------------------------
    // gradients of matrices: dW += dout^T input

    // Attention sums the columns of dqkv. Rotary turns the gradients of q and k once more.
    bool sums() const { return !d.kind.rotary() && block.attention.sums_bias(); }
    const floatX* h1() const { return whole ? a.h1 : tp.all_gather(s.h, a.ln1, nC); }
    const floatX* h2() const { return whole ? a.h2 : tp.all_gather(s.h, a.ln2, nC); }

    void add_qkv(const BlockGrads& dw, const floatX* dqkv, const floatX* h) const {
        ops::matmul_backward_weight_bias(dw.qkvw, sums() ? nullptr : dw.qkvb, dqkv, h, N, C, W);
    }
    void add_attproj(const BlockGrads& dw, const floatX* dout) const {
        ops::matmul_backward_weight(dw.attprojw, dout, a.atty, N, A, C);
    }
    void add_fc(const BlockGrads& dw, const floatX* dpre, const floatX* h) const {
        ops::matmul_backward_weight(dw.fcw, dpre, h, N, C, d.P());
    }
    void add_fcproj(const BlockGrads& dw, const floatX* dout) const {
        ops::matmul_backward_weight(dw.fcprojw, dout, a.act, N, F, C);
    }
    // Equal tokens add up.
    void add_wve(const BlockGrads& dw, const floatX* drows) const {
        ops::encoder_backward(dw.wve, nullptr, drows, {.tokens = span.tokens, .v0 = 0, .V = d.V, .N = N,
                                                       .T = span.T, .C = d.K, .t0 = 0});
    }

    // The inputs are forward's; backward() has left the gradients of the outputs (block.h).
    void weight_half(const BlockGrads& dw) const {
        add_fcproj(dw, tp.all_gather(s.dh, a.dx2, nC));
        add_fc(dw, a.pre, h2());
        add_attproj(dw, tp.all_gather(s.dh, a.x1, nC));
        add_qkv(dw, a.qkv, h1());
        if (dw.wve) add_wve(dw, a.dvalues);
    }

    // -----------------------------------------------------------------------------------------------------
    // attention: x = r in + z x0,  x1 = x + Wattproj attention(rotary(Wqkv norm(x)))

    // The shortcut: a.x, and a.in = the incoming stream.
    void mix(Stream in) const {
        ops::shortcut_forward({.out = a.x, .in = a.in, .x = in.x, .r = in.r, .bias = in.bias, .x0 = span.x0,
                               .keep = w.residw, .add = w.x0w}, mine, C);
    }

    // a.x = in, a.ln1 = norm(a.x)
    ops::Layernorm norm1(Stream in) const {
        return norm(in, a.x, a.ln1, a.ln1_mean, a.ln1_rstd, w.ln1w, w.ln1b, d);
    }

    void qkv(Stream in) const {
        if (d.kind.shortcut) {
            mix(in);
            in = {.x = a.x};
        }
        coded_norm(norm1(in));
        a.h1 = tp.all_gather(s.h, a.ln1, nC);
        product.forward(a.qkv, a.h1, wqkv(), Amaxes::Left);
        if (w.wve) ops::values_forward(values(a.qkv, a.h1));
        if (d.kind.rotary()) ops::rotary_forward(rotary());
    }

    void attention(Stream in) const {
        qkv(in);
        if (span.shared) attend_segments();
        else attend();
    }

    Stream attention_out() const {
        product.forward(s.r, a.atty, wattproj(), Amaxes::Pass);
        return {.x = a.x, .r = tp.reduce_scatter(s.slice, s.r, nC), .bias = w.attprojb};
    }

    // dx: the gradient of x1. attprojb's gradient is there: the norm of x1 has summed dx.
    StreamGradient attention_backward(const BlockGrads& dw, floatX* dx, floatX* dx0, real* dbias) const {
        const floatX* dout = tp.all_gather(s.dh, dx, nC);
        if (now) add_attproj(dw, dout);
        else ops::copy(a.x1, dx, nC);                           // x1 was read for the last time
        product.backward_input(s.datty, dout, wattproj(), Amaxes::Pass);
        block.attention.backward({.dq = s.dqkv, .dk = s.dqkv + A, .dv = s.dqkv + A + d.K,
                                  .dout = s.datty, .out = a.atty, .lse = a.lse,
                                  .q = a.qkv, .k = a.qkv + A, .v = a.qkv + A + d.K,
                                  .dbias = sums() ? dw.qkvb : nullptr},
                                 attention_dims(span.B, span.T, span.t0));
        if (d.kind.rotary()) ops::rotary_backward(s.dqkv, dw.qnw, dw.knw, rotary());
        const floatX* h = now || w.wve ? h1() : nullptr;
        if (now) add_qkv(dw, s.dqkv, h);
        product.backward_input(s.dh, s.dqkv, wqkv(), Amaxes::Pass);
        if (w.wve) values_backward(dw, h);
        ops::layernorm_backward({.dx = dx, .dw = dw.ln1w, .db = dw.ln1b, .dbias = zeroed(dbias, C)},
                                tp.reduce_scatter(s.slice, s.dh, nC), norm1({.x = a.x}), mine, C);
        if (d.kind.shortcut)
            ops::shortcut_backward({.dx = dx, .dx0 = dx0, .dkeep = dw.residw, .dadd = dw.x0w}, a.in, span.x0,
                                   w.residw, w.x0w, mine, C);
        return {.dx = dx, .dbias = dbias};
    }

    // -----------------------------------------------------------------------------------------------------
    // feed-forward: x2 = x1 + Wfcproj f(Wfc norm(x1))

    // a.x1 = in, a.ln2 = norm(a.x1)
    ops::Layernorm norm2(Stream in) const {
        return norm(in, a.x1, a.ln2, a.ln2_mean, a.ln2_rstd, w.ln2w, w.ln2b, d);
    }

    void feed_forward(Stream in) const {
        coded_norm(norm2(in));
        a.h2 = tp.all_gather(s.h2 ? s.h2 : s.h, a.ln2, nC);
        product.forward(a.act, a.pre, a.h2, wfc(), Amaxes::Left, f, F);
    }

    Stream feed_forward_out() const {
        product.forward(s.r, a.act, wfcproj(), Amaxes::Left);
        const floatX* bias = w.fcprojb ? s.bias : nullptr;
        if (bias) ops::copy(s.bias, w.fcprojb, size_t(C));      // read when these weights may be gone
        return {.x = a.x1, .r = tp.reduce_scatter(s.slice, s.r, nC), .bias = bias};
    }

    void feed_forward_backward(const BlockGrads& dw, StreamGradient g) const {
        floatX* const dx = g.dx;
        if (dw.fcprojb && g.dbias) ops::accumulate(dw.fcprojb, g.dbias, size_t(C));
        else ops::bias_backward(dw.fcprojb, dx, mine, C);
        const floatX* dout = tp.all_gather(s.dh, dx, nC);
        if (now) add_fcproj(dw, dout);
        else ops::copy(a.dx2, dx, nC);
        floatX* dact = now ? a.act : s.dact;                    // read for the last time
        product.backward_input(s.dpre, dact, dout, wfcproj(), Amaxes::Pass, a.pre, f, dw.fcb);
        if (now) add_fc(dw, s.dpre, h2());
        product.backward_input(s.dh, s.dpre, wfc(), Amaxes::Left);
        ops::layernorm_backward({.dx = dx, .dw = dw.ln2w, .db = dw.ln2b, .dbias = dw.attprojb},
                                tp.reduce_scatter(s.slice, s.dh, nC), norm2({.x = a.x1}), mine, C);
    }
};

}  // namespace

// ---------------------------------------------------------------------------------------------------------
// both halves

Stream Block::forward(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s,
                      Span span) const {
    const Call call{*this, w, a, s, span};
    call.attention(in);
    call.feed_forward(call.attention_out());
    const Stream out = call.feed_forward_out();
    flip_if_asked(Flip::Activations, out.r, size_t(call.mine) * size_t(d.C) * sizeof *out.r);
    return out;
}

void Block::qkv(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s, Span span) const {
    Call{*this, w, a, s, span}.qkv(in);
}

void Block::recompute(const BlockWeights& w, BlockActs& a, const BlockScratch& s, Span span) const {
    const Call call{*this, w, a, s, span};
    const Stream in = {.x = d.kind.shortcut ? a.in : a.x}, kept = {.x = a.x1};
    if (level == Recompute::Block) {
        call.attention(in);
        call.feed_forward(keeps_x1(d) ? kept : call.attention_out());
    }
    if (level == Recompute::Selective) {
        if (d.kind.shortcut) call.mix(in);
        ops::layernorm_forward(call.norm1({.x = a.x}), call.mine, d.C);
        ops::layernorm_forward(call.norm2(kept), call.mine, d.C);
        ops::activation_forward(a.act, a.pre, d.kind.activation, span.N(), d.F);
    }
}

StreamGradient Block::backward(const BlockWeights& w, const BlockGrads& dw, BlockActs& a, StreamGradient g,
                               floatX* dx0, BlockScratch& s, Span span, real* dbias) const {
    const Call call{*this, w, a, s, span};
    call.feed_forward_backward(dw, g);
    const StreamGradient in = call.attention_backward(dw, g.dx, dx0, dbias);
    if (halves) {
        std::swap(a.qkv, s.dqkv);
        std::swap(a.pre, s.dpre);
        a.kv = a.qkv;
    }
    return in;
}

void Block::weight_half(const BlockGrads& dw, BlockActs& a, const BlockScratch& s, Span span) const {
    Call{*this, {}, a, s, span}.weight_half(dw);
}

}  // namespace PRECISION::model
