// A rank's part of the model: embedding, blocks, final norm, head; forward above backward. The part is a
// few chunks of blocks; a call runs a chunk for a micro-batch, with the activations in a buffer of the chunk.
//
// Weights and gradients come from a provider in train/, which knows the placement over ranks:
//
//     embed(), block(l), final(), head()              weights; a block's, valid until the next block(l)
//     embed_grads(), block_grads(l), final_grads(), head_grads()      where to add gradients
//     done_embed(), done_block(l), done_final(), done_head()          this micro-batch's gradients are done
//     vector_grads(l, buffer)         with shape.halves, in backward(): where to add those of vectors
//     add_vector_grads(l, buffer)     in weight_half(), before done_block(l)
//     version(), block_codes(l)       another number with new weights; the codes of block(l), if it comes so
//
// No floor below train/ knows of data parallelism, and no call is virtual. l: number of a block of this rank.
// The matrix of a tied head is wte. Chunks that embed call embed(), chunks that end call final() and head().
// On a rank with both, the gradient of wte is complete at done_embed().
#pragma once
#include <algorithm>

#include "llmc/base/guard/progress_page.h"
#include "llmc/model/ends.h"
#include "llmc/model/hosted_streams.h"

namespace PRECISION::inline model {

// A micro-batch: inputs and targets, (B, T) each, T tokens of each row being here, and with
// model.document_mask the documents of whole rows. Equal on every rank of tp.
struct Batch {
    const int32_t *tokens, *targets;
    int B, T;
    ops::Documents documents = {};
    const int32_t* positions = nullptr;     // (B, T)   null: 0, 1, ... in each row
    int N() const { return B * T; }
};

struct GptShape {
    Dims d;
    int B, T, cp = 1;     // largest micro-batch: rows, tokens of a row; ranks that share a row
    int here() const { return T / cp; }     // tokens of a row on this rank
    Recompute level = Recompute::None;
    bool backward = true;
    bool apart = true;    // gradients as Gpt::kApart says
    int coded_blocks = 0; // blocks whose matrices have FP8 codes at once (linear.h); 0: products in floatX
    bool gathers_codes = false;         // blocks come as codes
    bool halves = false;  // backward() leaves the matrices' gradients to weight_half(). REQUIRES: level None
    bool by_layers = false;     // each chunk runs all micro-batches before the next chunk, on this rank
    bool hosts_streams = false; // by layers: the inputs of blocks leave to the host's memory
    int N() const { return B * here(); }
};

struct Gpt {
    GptShape shape;
    Dims d;
    Axis tp;
    Part part;
    std::vector<int> buffers;             // by chunk: micro-batches alive at once, a buffer each
    CpAttention attention;
    Block block;
    int logit_rows;                       // rows of logits in memory at once

    std::vector<BlockActs> acts;          // by chunk, then by buffer, then by block of the chunk: see of()
    std::vector<EmbedActs> embedded;      // per buffer of the chunk that embeds
    std::vector<HeadActs> head;           // per buffer of the chunk that ends
    HostedStreams hosted;
    BlockScratch scratch;
    CodedBlocks coded;
    floatX* sent;         // the message after a chunk that does not end
    floatX* logits;       // (logit_rows, Vp)
    real* stats;          // (tp, logit_rows, 3)    of each slice of a row of logits; tp > 1
    real* losses;         // (N)
    double* loss;         // (2) sums since clear_loss(), equal on all ranks of tp: losses; those left out
    floatX* dx;           // gradients of a message: of the stream (n, C), with the shortcut of x0 behind it.
                          // By layers one of each buffer
    real* dbias = nullptr;    // (buffers, C)    by layers, with sums_on_the_way(d): of each gradient in dx
    real* dtokens;        // (Vp, C)      fp64 only, while apart: gradient of wte as embedding
    bool apart = false;   // between begin_step() and end_step()
    Spread* spreads = nullptr;  // of activations (act_spreads.h), which forward() adds to; null: none

    // A tied wte's gradient has two terms, from the head and from the embedding. In fp64 a step sums each
    // term in the order of its tokens and adds the two at the end of the step: the bits do not depend on the
    // cut of the batch into micro-batches. Only if one rank embeds and ends, and shape.apart is set.
    static constexpr bool kApart = sizeof(floatX) == sizeof(double);

    Gpt(const GptShape& shape, const Axis& tp, const Part& part, const std::vector<int>& buffers,
        const CpAttention& attention = {});
    Gpt(const Gpt&) = delete;

    void add_to(ArenaOf arena, Arena* host = nullptr);      // asks for memory. host: with hosts_streams
    void ready();                    // after Arena::allocate(): shares buffers between blocks
    size_t reduction_bytes() const;     // of the largest reduction over tp, for tp's staging

    // Around the calls of backward() in a step. end_step() adds dtokens to dwte, if kApart applies. Without a
    // step backward() adds every gradient to its tensor.
    void begin_step();
    void end_step(real* dwte);
    void clear_loss() { ops::set_zero(loss, 2 * sizeof *loss); }
    // Adds the loss of token i of the last head_loss() to the second sum.
    void leave_out(size_t i) { ops::sum_in_order(loss + 1, losses + i, 1); }
    // For a micro-batch of N tokens: elements of this rank's slice of the stream, (n, C), and of a message to
    // another stage. A message is the stream, with the shortcut followed by x0; a message back has the
    // gradients of both.
    size_t stream_count(int N) const { return size_t(Slice(tp, N).n) * size_t(d.C); }
    size_t message_count(int N) const { return stream_count(N) * (d.kind.shortcut ? 2 : 1); }
    // Place of the incoming message before forward() of a chunk that does not embed.
    floatX* input(int chunk, int buffer) {
        BlockActs& a = of(part.chunks[size_t(chunk)].begin, buffer);
        return d.kind.shortcut ? a.in : a.x;
    }
    floatX* output() { return sent; }       // of a chunk that does not end. By layers the next chunk has it
    // Place of incoming gradients before backward() of a chunk that does not end; after it, of those to send.
    floatX* gradient(int buffer = 0) {
        return dx + (shape.by_layers ? size_t(buffer) * message_count(shape.N()) : 0);
    }

    // Runs a chunk and keeps the inputs of backward().
    template <class W> void forward(W& weights, const Batch& b, int chunk = 0, int buffer = 0);

    // Adds the losses of a micro-batch. REQUIRES: forward() of the chunk that ends has run for this buffer.
    template <class W> void head_loss(W& weights, const Batch& b, int buffer = 0);

    // Adds the gradients of all parameters of a chunk, each token's loss weighted by dloss. The chunk that
    // ends also adds the losses, as head_loss() does, unless dloss is 0: then gradients are zeros, too.
    template <class W> void backward(W& weights, const Batch& b, real dloss, int chunk = 0, int buffer = 0);

    // With shape.halves: adds the gradients that backward() has left. The ends of the model have none.
    template <class W> void weight_half(W& weights, const Batch& b, int chunk = 0, int buffer = 0);

private:
    BlockActs& of(int l, int buffer);
    HeadActs& head_acts(int buffer) { return head[size_t(buffer) % head.size()]; }
    // A block's weights, with their codes in `scratch`.
    template <class W> BlockWeights weights_of(W& weights, int l, bool backward) {
        const BlockWeights w = weights.block(l);
        const BlockCodes* const codes = weights.block_codes(l);
        scratch.codes = coded.of(l, w, codes, backward, weights.version(), d, scratch.inputs, tp);
        return w;
    }
    Span span(const Batch& b, int l, const floatX* x0) const {
        return {.B = b.B, .T = b.T, .window = d.kind.window(part.layers[size_t(l)]),
                .documents = b.documents, .positions = b.positions, .tokens = b.tokens, .x0 = x0};
    }
    // With the shortcut: the embedded tokens of a micro-batch, computed by this chunk, or behind the stream
    // in the incoming message; else null.
    const floatX* x0(const Batch& b, int chunk, int buffer) {
        if (!d.kind.shortcut) return nullptr;
        const size_t before = part.chunks[size_t(chunk)].embeds ? 0 : stream_count(b.N());
        return input(chunk, buffer) + before;
    }
    ops::Encoder encoder(const Batch& b) const {
        return {.tokens = b.tokens, .v0 = d.v0, .V = d.Vp, .N = b.N(), .T = b.T * shape.cp, .C = d.C,
                .t0 = 0, .positions = b.positions};
    }
    // By layers, with a tied wte: embed_backward() computes the logits again and adds the head's gradient.
    // So each micro-batch adds both terms to wte before the next one does, as in the other schedules.
    bool head_waits() const { return shape.by_layers && d.kind.tied; }
    enum class OfHead { All, Input, Weights };          // which gradients
    template <class W> void embed_backward(W& weights, const Batch& b, real dloss, int buffer);
    template <class W> void head_backward(W& weights, const Batch& b, real dloss, int buffer, OfHead part);
    void add_spreads(const BlockActs& a, const Stream& out, int layer, int N);
    void add_spreads(const HeadActs& a, int N);
    ops::Classifier classifier(const Batch& b, int n0, int rows) const;
    void finish_losses(int N) { ops::sum_in_order(loss, losses, size_t(N)); }
};

template <class W> void Gpt::forward(W& weights, const Batch& b, int c, int buffer) {
    const Chunk chunk = part.chunks[size_t(c)];
    hosted.before_forward(c, buffer);
    Stream stream{.x = input(c, buffer)};
    if (chunk.embeds)
        embed(weights, tp, embedded[size_t(buffer)], input(c, buffer), scratch.h, encoder(b), d);

    for (int l = chunk.begin; l < chunk.end; l++) {
        const Walking at(&Walk::block, part.layers[size_t(l)]);
        const BlockWeights w = weights_of(weights, l, false);
        stream = block.forward(w, of(l, buffer), stream, scratch, span(b, l, x0(b, c, buffer)));
        if (spreads) add_spreads(of(l, buffer), stream, part.layers[size_t(l)], b.N());
    }

    const int mine = Slice(tp, b.N()).mine;
    if (chunk.ends) {
        final_norm(weights, head_acts(buffer), stream, mine, d);
        if (spreads) add_spreads(head_acts(buffer), b.N());
    } else {
        floatX* const out = shape.by_layers ? input(c + 1, buffer) : sent;
        ops::add_residual(out, stream.x, stream.r, stream.bias, mine, d.C);
        const size_t nC = stream_count(b.N());
        if (d.kind.shortcut) ops::copy(out + nC, x0(b, c, buffer), nC);
    }
    hosted.after_forward(of(chunk.begin, buffer), c, buffer);
}

template <class W> void Gpt::head_loss(W& weights, const Batch& b, int buffer) {
    const int N = b.N();
    const HeadTensors<floatX> w = weights.head();
    const floatX* h = tp.all_gather(scratch.h, head_acts(buffer).lnf, stream_count(N));
    for (int n0 = 0; n0 < N; n0 += logit_rows) {
        beat();
        const int rows = std::min(logit_rows, N - n0);
        const ops::Classifier t = classifier(b, n0, rows);
        ops::matmul_forward(logits, h + size_t(n0) * d.C, w.w, w.b, rows, d.C, d.Vp);
        ops::classifier_forward(t);
        ops::classifier_merge(t, tp.all_gather(stats, t.stats, size_t(3 * rows)));
    }
    finish_losses(N);
}

// The logits become their gradients in place, and are used while warm. dlnf is in scratch.dh.
template <class W>
void Gpt::head_backward(W& weights, const Batch& b, real dloss, int buffer, OfHead part) {
    const int N = b.N(), C = d.C;
    const HeadTensors<floatX> w = weights.head();
    const HeadTensors<real> dw = weights.head_grads();
    const floatX* h = tp.all_gather(scratch.h, head_acts(buffer).lnf, stream_count(N));
    for (int n0 = 0; n0 < N; n0 += logit_rows) {
        beat();
        const int rows = std::min(logit_rows, N - n0);
        const size_t at = size_t(n0) * C;
        const ops::Classifier t = classifier(b, n0, rows);
        ops::matmul_forward(logits, h + at, w.w, w.b, rows, C, d.Vp);
        ops::classifier_forward_backward(t, dloss);
        ops::classifier_merge_backward(t, tp.all_gather(stats, t.stats, size_t(3 * rows)), dloss);
        if (part != OfHead::Input)
            ops::matmul_backward_weight_bias(dw.w, dw.b, logits, h + at, rows, C, d.Vp);
        if (part != OfHead::Weights)
            ops::matmul_backward_input(scratch.dh + at, logits, w.w, rows, C, d.Vp);
    }
    weights.done_head();
    if (dloss != 0 && part != OfHead::Weights) finish_losses(N);
}

template <class W> void Gpt::backward(W& weights, const Batch& b, real dloss, int c, int buffer) {
    const Chunk chunk = part.chunks[size_t(c)];
    const size_t nC = stream_count(b.N());
    const int mine = Slice(tp, b.N()).mine;
    floatX* const to = gradient(buffer);
    hosted.before_backward(acts, c, buffer);
    real* const sums = dbias ? dbias + size_t(buffer) * size_t(d.C) : scratch.dbias;
    const bool summed = dbias && !chunk.ends;       // by the backward of the chunk behind
    const int first = dbias ? 0 : chunk.begin;      // no block sums for another before it
    StreamGradient g = {.dx = to, .dbias = summed ? sums : zeroed(sums, d.C)};
    if (chunk.ends) {
        const HeadActs& a = head_acts(buffer);
        head_backward(weights, b, dloss, buffer, head_waits() ? OfHead::Input : OfHead::All);
        ops::set_zero(to, message_count(b.N()) * sizeof(floatX));
        const auto grads = weights.final_grads();
        ops::layernorm_backward({to, grads.lnfw, grads.lnfb, sums},
                                tp.reduce_scatter(scratch.slice, scratch.dh, nC),
                                norm_of_head(weights.final(), a, {.x = a.xf}, d), mine, d.C);
        weights.done_final();
    } else if (!summed) ops::bias_backward(sums, to, mine, d.C);

    for (int l = chunk.end - 1; l >= chunk.begin; l--) {
        const Walking at(&Walk::block, part.layers[size_t(l)]);
        const BlockWeights w = weights_of(weights, l, true);
        const Span at_l = span(b, l, x0(b, c, buffer));
        block.recompute(w, of(l, buffer), scratch, at_l);
        const BlockGrads dw = shape.halves ? weights.vector_grads(l, buffer) : weights.block_grads(l);
        g = block.backward(w, dw, of(l, buffer), g, to + nC, scratch, at_l, l > first ? sums : nullptr);
        if (!shape.halves) weights.done_block(l);
    }

    if (chunk.embeds) embed_backward(weights, b, dloss, buffer);
}

template <class W> void Gpt::weight_half(W& weights, const Batch& b, int c, int buffer) {
    const Chunk chunk = part.chunks[size_t(c)];
    for (int l = chunk.end - 1; l >= chunk.begin; l--) {
        beat();
        const Walking at(&Walk::block, part.layers[size_t(l)]);
        block.weight_half(weights.block_grads(l), of(l, buffer), scratch, span(b, l, nullptr));
        weights.add_vector_grads(l, buffer);
        weights.done_block(l);
    }
}

template <class W> void Gpt::embed_backward(W& weights, const Batch& b, real dloss, int buffer) {
    if (head_waits()) head_backward(weights, b, dloss, buffer, OfHead::Weights);
    const size_t nC = stream_count(b.N());
    const auto grads = weights.embed_grads();
    floatX* const g = gradient(buffer);
    if (d.kind.shortcut)
        ops::add_residual(g, g, g + nC, nullptr, Slice(tp, b.N()).mine, d.C);
    const floatX* draw = g;
    if (d.kind.embed_norm) {
        const EmbedActs& a = embedded[size_t(buffer)];
        ops::set_zero(scratch.dh, nC * sizeof(floatX));
        ops::layernorm_backward({scratch.dh, grads.lnew, grads.lneb}, g,
                                norm_of_embedding(weights.embed(), a, nullptr, d), Slice(tp, b.N()).mine,
                                d.C);
        draw = scratch.dh;
    }
    const floatX* dout = tp.all_gather(scratch.h, draw, nC);
    ops::encoder_backward(apart ? dtokens : grads.wte, grads.wpe, dout, encoder(b));
    weights.done_embed();
}

}  // namespace PRECISION::model
