// Generation: one sequence, a few tokens at a time, with a cache of its keys and values.
//
// The cache of a block holds packed rows (q, k, v) like training, so that the same block forward serves both:
// a call writes its rows at t0 and attends to the rows before.
#pragma once
#include "llmc/model/infer/forward_only.h"

namespace PRECISION::inline infer {

struct Decoder {
    ForwardOnly own;
    std::vector<floatX*> cache;        // per block (maxT, W)
    floatX* own_logits;                // (1, Vp)
    floatX* all_logits;                // (1, tp Vp), of the whole vocabulary; on one rank of tp own_logits
    int32_t* tokens;                   // (rows)

    static constexpr int kRows = 64;   // tokens of a prompt per call: own.rows

    Decoder(const Dims& d, const Axis& tp, const Part& part);
    void add_to(ArenaOf arena);

    // Runs one chunk for `count` <= own.rows tokens at positions t0, t0 + 1, ...; the cache holds the
    // positions before t0. Returns the logits (V) after the last token for the chunk that ends, on every rank
    // of tp; else null.
    template <class W>
    const floatX* forward(W& weights, const int32_t* ids, int count, int t0, int chunk = 0);

    // Copies the logits that forward() returned to the host, and applies the model's softcap.
    std::vector<floatX> on_host(const floatX* logits) const;
};

template <class W>
const floatX* Decoder::forward(W& weights, const int32_t* ids, int count, int t0, int c) {
    const Dims& d = own.d;
    CHECK(count <= own.rows && t0 + count <= d.maxT,
          "decoder: {} tokens at position {} of {}", count, t0, d.maxT);
    const Chunk chunk = own.part.chunks[size_t(c)];
    Span span{.B = 1, .T = count, .t0 = t0, .tokens = tokens, .x0 = own.x0(chunk, count)};
    if (chunk.embeds || d.kind.values)
        ops::copy_to_device(tokens, ids, size_t(count) * sizeof *ids);
    Stream stream = own.enter(weights, chunk, {.tokens = tokens, .v0 = d.v0, .V = d.Vp, .N = count,
                                                .T = count, .C = d.C, .t0 = t0});
    for (int l = chunk.begin; l < chunk.end; l++) {
        const Walking at(&Walk::block, own.part.layers[size_t(l)]);
        span.window = d.kind.window(own.part.layers[size_t(l)]);
        own.acts.kv = cache[size_t(l)];
        own.acts.qkv = cache[size_t(l)] + size_t(t0) * size_t(d.W);
        stream = own.block.forward(weights.block(l), own.acts, stream, own.scratch, span);
    }
    own.leave(weights, chunk, stream, count);
    if (!chunk.ends) return nullptr;
    const floatX* h = own.tp.all_gather(own.scratch.h, own.head.lnf, own.stream_count(count));
    const HeadTensors<floatX> w = weights.head();
    ops::matmul_forward(own_logits, h + size_t(count - 1) * d.C, w.w, w.b, 1, d.C, d.Vp);
    return own.tp.all_gather(all_logits, own_logits, size_t(d.Vp));
}

}  // namespace PRECISION::infer
