// Generation: one sequence, a few tokens at a time, with a cache of its keys and values.
//
// The cache of a block holds packed rows (q, k, v) like training, so that the same block forward serves both:
// a call writes its rows at t0 and attends to the rows before.
#pragma once
#include "llmc/model/gpt.h"

namespace PRECISION {

struct Decoder {
    Dims d;
    Axis tp;
    Part part;
    Block block;
    int rows;                          // most tokens of one call
    std::vector<floatX*> cache;        // per block (maxT, W)
    std::vector<BlockActs> acts;       // one, shared by all blocks
    BlockScratch scratch;
    EmbedActs embedded = {};
    HeadActs head = {};
    floatX* received = nullptr;        // with the shortcut: the incoming message, or the embedded tokens
    floatX* sent;                      // the outgoing message
    floatX* own_logits;                // (1, Vp)
    floatX* all_logits;                // (1, tp Vp): the vocabulary is whole; own_logits on one rank
    int32_t* tokens;                   // (rows)

    static constexpr int kRows = 64;   // a prompt is read in pieces of this size

    Decoder(const Dims& d, const Axis& tp, const Part& part);
    Decoder(const Decoder&) = delete;
    void add_to(Arena& arena);

    // As in Gpt: the incoming message of `count` tokens before a chunk that does not embed, and the outgoing
    // message after a chunk that does not end; message_count() elements.
    floatX* input() { return d.kind.shortcut ? received : acts[0].x; }
    floatX* output() { return sent; }
    size_t stream_count(int count) const { return size_t(Slice(tp, count).n) * size_t(d.C); }
    size_t message_count(int count) const { return stream_count(count) * (d.kind.shortcut ? 2 : 1); }

    // Runs one chunk for `count` <= rows tokens at positions t0, t0 + 1, ...; the cache holds the positions
    // before t0. Returns the logits (V) after the last token for the chunk that ends, on every rank of tp;
    // else null.
    template <class W>
    const floatX* forward(W& weights, const int32_t* ids, int count, int t0, int chunk = 0);

    // Copies the logits that forward() returned to the host, and caps them where the model does.
    std::vector<floatX> on_host(const floatX* logits) const;
};

template <class W>
const floatX* Decoder::forward(W& weights, const int32_t* ids, int count, int t0, int c) {
    CHECK(count <= rows && t0 + count <= d.maxT,
          "decoder: {} tokens at position {} of {}", count, t0, d.maxT);
    const Chunk chunk = part.chunks[size_t(c)];
    const int mine = Slice(tp, count).mine;
    const size_t nC = stream_count(count);
    Span span{.B = 1, .T = count, .t0 = t0, .tokens = tokens};
    if (d.kind.shortcut) span.x0 = received + (chunk.embeds ? 0 : nC);
    BlockActs& a = acts[0];
    if (chunk.embeds || d.kind.values)
        ops::copy_to_device(tokens, ids, size_t(count) * sizeof *ids);
    if (chunk.embeds)
        embed(weights, tp, embedded, input(), scratch.h,
              {.tokens = tokens, .v0 = d.v0, .V = d.Vp, .N = count, .T = count, .C = d.C, .t0 = t0}, d);
    Stream stream{.x = input()};
    for (int l = chunk.begin; l < chunk.end; l++) {
        const Walking at(&Walk::block, part.layers[size_t(l)]);
        span.window = d.kind.window(part.layers[size_t(l)]);
        a.kv = cache[size_t(l)];
        a.qkv = cache[size_t(l)] + size_t(t0) * size_t(d.W);
        stream = block.forward(weights.block(l), a, stream, scratch, span);
    }
    if (!chunk.ends) {
        ops::add_residual(sent, stream.x, stream.r, stream.bias, mine, d.C);
        if (d.kind.shortcut) ops::copy(sent + nC, span.x0, nC);
        return nullptr;
    }
    final_norm(weights, head, stream, mine, d);
    const floatX* h = tp.all_gather(scratch.h, head.lnf, nC);
    const HeadTensors<floatX> w = weights.head();
    ops::matmul_forward(own_logits, h + size_t(count - 1) * d.C, w.w, w.b, 1, d.C, d.Vp);
    return tp.all_gather(all_logits, own_logits, size_t(d.Vp));
}

}  // namespace PRECISION
