// Room model/infer: the model without backward, for texts and for scores of tasks.
// Called by train/run and train/score, which bring tokens and weights.
// The room does not know where tokens come from, nor how a next token is drawn. All ranks of cp compute the
// same.
//
// A rank's part of the model: one set of activations serves all blocks. The caller runs the blocks between
// enter() and leave().
#pragma once
#include "llmc/model/gpt.h"

namespace PRECISION::inline infer {

struct ForwardOnly {
    Dims d;
    Axis tp;
    Part part;
    CpAttention attention = {};        // each rank of cp computes all tokens
    Block block;
    int rows;                          // most tokens of a call
    BlockActs acts = {};               // members without a row in acts.h are null
    BlockScratch scratch;
    EmbedActs embedded = {};
    HeadActs head = {};
    floatX* received = nullptr;        // with the shortcut: the incoming message, or the embedded tokens
    floatX* sent;                      // the outgoing message

    ForwardOnly(const Dims& d, const Axis& tp, const Part& part, int rows);
    ForwardOnly(const ForwardOnly&) = delete;
    // name: of the activations, in the plan. cached: acts.qkv lies in a cache of the caller.
    void add_to(ArenaOf arena, const char* name, bool cached);
    void ready();                      // after Arena::allocate(): fills the rotary table

    // As in Gpt: the incoming message of N tokens before a chunk that does not embed, and the outgoing
    // message after a chunk that does not end; message_count() elements.
    floatX* input() { return d.kind.shortcut ? received : acts.x; }
    floatX* output() { return sent; }
    size_t stream_count(int N) const { return size_t(Slice(tp, N).n) * size_t(d.C); }
    size_t message_count(int N) const { return stream_count(N) * (d.kind.shortcut ? 2 : 1); }

    // With the shortcut: the embedded tokens of a chunk of N tokens; else null.
    const floatX* x0(const Chunk& chunk, int N) const {
        if (!d.kind.shortcut) return nullptr;
        return chunk.embeds ? received : received + stream_count(N);
    }
    // The stream that enters a chunk: embedded here, or received.
    template <class W> Stream enter(W& weights, const Chunk& chunk, const ops::Encoder& e) {
        if (chunk.embeds) embed(weights, tp, embedded, input(), scratch.h, e, d);
        return {.x = input()};
    }
    // The stream that leaves a chunk of N tokens: to head.lnf by the final norm, or to the outgoing message.
    template <class W> void leave(W& weights, const Chunk& chunk, const Stream& stream, int N) {
        const int mine = Slice(tp, N).mine;
        if (chunk.ends) return final_norm(weights, head, stream, mine, d);
        ops::add_residual(sent, stream.x, stream.r, stream.bias, mine, d.C);
        if (d.kind.shortcut) ops::copy(sent + stream_count(N), x0(chunk, N), stream_count(N));
    }
};

}  // namespace PRECISION::infer
