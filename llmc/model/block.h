// One transformer block:
//
//     x  = r in + z x0                                          with the shortcut; else x is in
//     x1 = x  + Wattproj attention(rotary(Wqkv norm(x)))        v + gated values, in some blocks
//     x2 = x1 + Wfcproj f(Wfc norm(x1))
//
// Dims::kind says which norm and activation f, and which gains and biases there are. x0 is the stream after
// the embedding. The next norm (of the following block, or the final norm) does the add that ends a block,
// and so reads and writes the stream once: a block takes and returns a `Stream`, the terms of that add.
//
// Over tp, matrices are cut by heads and by features (Shoeybi et al. 2019, arXiv 1909.08053), the stream and
// its norms by tokens (Korthikanti et al. 2022, arXiv 2205.05198): two gathers and two scatters each way, and
// two gathers more in backward, of inputs kept as slices; recomputation, if any, does these two. Over cp rows
// are cut, and attention alone (cp_attention.h) sees tokens of other ranks.
#pragma once
#include "llmc/model/acts.h"
#include "llmc/model/cp_attention.h"
#include "llmc/model/linear.h"
#include "llmc/model/params.h"
#include "llmc/model/score_pass.h"
#include <span>

namespace PRECISION::inline model {

using BlockWeights = BlockTensors<floatX>;
using BlockGrads = BlockTensors<real>;

// The residual stream, x + (r + bias), before the addition; without r, x is the sum.
struct Stream {
    const floatX* x;                  // (n, C)
    const floatX* r = nullptr;        // (n, C), or null
    const floatX* bias = nullptr;     // (C), or null
};

// The gradient of a Stream.
struct StreamGradient {
    floatX* dx;                       // (n, C)  of the sum
    const real* dbias = nullptr;      // (C)     column sums of dx over this rank's tokens; null: not summed
};

// Zeros to add to, if there is a buffer.
inline real* zeroed(real* values, int count) {
    if (values) ops::set_zero(values, size_t(count) * sizeof(real));
    return values;
}

// A norm: x1 = in, y = norm(x1), with gain w and shift b. in.x = x1 in recomputation and in backward.
inline ops::Layernorm norm(Stream in, floatX* x1, floatX* y, real* mean, real* rstd, const floatX* w,
                           const floatX* b, const Dims& d) {
    return {.kind = d.kind.norm, .x1 = x1, .y = y, .mean = mean, .rstd = rstd, .x = in.x, .r = in.r,
            .bias = in.bias, .w = w, .b = b, .eps = real(d.kind.eps)};
}

// The segments of a pass (score_pass.h), and this block's keys and values of prefixes that sequences share.
struct SharedKeys {
    std::span<const Segment> segments;
    const floatX* kept;     // (rows, 2K)       of the prefixes
    const int32_t* from;    // ScorePass::from
    floatX* joined;         // (B, t0 + T, 2K)  workspace of a segment: rows of the prefix, then the own rows
};

// The tokens of a call: B sequences of T tokens, the first at position t0. Keys before t0 are the rows of
// BlockActs::kv before BlockActs::qkv (generation, B = 1). With `shared` (scores) the B T rows are those of
// its segments.
struct Span {
    int B, T, t0 = 0;
    int window = 0;         // of the block's attention
    ops::Documents documents = {};      // of whole rows
    const int32_t* positions = nullptr; // (B, T)   null: t0, t0 + 1, ...
    const int32_t* tokens = nullptr;    // (B, T)
    const floatX* x0 = nullptr;         // (n, C)   with the shortcut
    const SharedKeys* shared = nullptr;

    int N() const { return B * T; }
};

// A rank's slice of N tokens: n rows of a collective, of which `mine` are tokens. The last ranks may have
// fewer tokens, or none; collectives send and sum the rows beyond, and no op reads them.
struct Slice {
    int n, mine;
    Slice(const Axis& tp, int N)
        : n((N + tp.size - 1) / tp.size), mine(std::clamp(N - tp.index * n, 0, n)) {}
};

// Buffers of a pass through a block. Only r, slice and bias live on: they are terms of the returned Stream.
// Likewise dbias of the returned StreamGradient.
struct BlockScratch {
    floatX *h, *h2;   // (n tp, C)   ln1 and ln2 of all tokens, gathered over tp; h2 null: both in h
    floatX* r;        // (n tp, C)   a matmul's addend to the stream
    floatX* slice;    // (n, C)      r or dh after the scatter
    floatX* bias;     // (C)         copy of the bias in the returned Stream
    floatX* dh;       // (n tp, C)   gradients, from here on
    floatX* dqkv;     // (N, W)
    floatX* datty;    // (N, A)
    floatX* dpre;     // (N, P)
    floatX* dact;     // (N, F)      with backward in two halves
    real* dgates;     // (N, KV)     with value embeddings
    real* dbias;      // (C)         if sums_on_the_way(d)
    InputCodes inputs;                      // with run.products = fp8
    const BlockCodes* codes;                // of the block's matrices; null: products in floatX
};
void add_block_scratch(ArenaOf arena, BlockScratch& s, const Dims& d, size_t N, size_t n, bool backward,
                       Recompute level, const Axis& tp, bool halves = false);

// Whether the norm that writes a gradient of the stream also sums its columns, for the bias of the block
// before. The shortcut scales dx behind the norm. In fp64 the block before sums by itself, token by token in
// its tensor: so the bits do not depend on the cut of a batch into micro-batches.
inline bool sums_on_the_way(const Dims& d) {
    return d.kind.bias && !d.kind.shortcut && sizeof(floatX) < sizeof(double);
}

struct Block {
    Dims d;
    const Axis& tp;
    Recompute level;
    const CpAttention& attention;
    real* rotary_table = nullptr;       // rotary_table.h
    bool halves = false;                // backward() leaves the gradients of matrices to weight_half()

    Stream forward(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s, Span span) const;

    // The first lines of forward: a.qkv, the queries, keys and values of the span's tokens.
    void qkv(const BlockWeights& w, BlockActs& a, Stream in, const BlockScratch& s, Span span) const;

    // Computes the contents of buffers that blocks share (acts.h) again, before backward.
    void recompute(const BlockWeights& w, BlockActs& a, const BlockScratch& s, Span span) const;

    // g: the gradient of the returned stream; returns that of the incoming stream, in the same dx. dbias:
    // where to sum its columns, as s.dbias; null: nowhere. dx0 (n, C) +=, with the shortcut. With halves, a
    // then has what weight_half() reads, and has traded buffers with s.
    StreamGradient backward(const BlockWeights& w, const BlockGrads& dw, BlockActs& a, StreamGradient g,
                            floatX* dx0, BlockScratch& s, Span span, real* dbias) const;

    // Adds the gradients of the matrices. It needs the inputs of their products, which forward has kept, and
    // the gradients of their outputs. These lie where backward() has read for the last time:
    //
    //     matrix      input           gradient of the output
    //     qkvw        ln1 (n, C)      qkv (N, W)
    //     attprojw    atty (N, A)     x1 (n, C)
    //     fcw         ln2 (n, C)      pre (N, P)
    //     fcprojw     act (N, F)      dx2 (n, C), a buffer of its own
    //     wve         tokens          dvalues (N, K), a buffer of its own
    //
    // So a block keeps n C + N K elements more than without halves; a block of GPT n C beside 16 n C.
    void weight_half(const BlockGrads& dw, BlockActs& a, const BlockScratch& s, Span span) const;
};

}  // namespace PRECISION::model
