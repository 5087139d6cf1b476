// Generation: one sequence, a few tokens at a time, with a cache of its keys and values.
//
// The cache of a block holds packed rows (q, k, v) as training has them, so that the same block forward
// serves both: a call writes its rows at t0 and attends to all rows before.
#pragma once
#include "llmc/model/gpt.h"

namespace PRECISION {

struct Decoder {
    Dims d;
    Axis tp;
    Block block;
    int rows;                          // most tokens of one call
    std::vector<floatX*> cache;        // per block (maxT, 3C)
    std::vector<BlockActs> acts;       // one, shared by all blocks
    BlockScratch scratch;
    floatX *xf, *lnf;                  // (rows, C)
    real *lnf_mean, *lnf_rstd;
    floatX* logits;                    // (1, Vp)
    int32_t* tokens;                   // (rows)

    static constexpr int kRows = 64;   // a prompt is read in pieces of this size

    Decoder(const Dims& d, const Mesh& mesh);
    Decoder(const Decoder&) = delete;
    void add_to(Arena& arena);
    ops::ScratchSizes scratch_sizes() const;

    // Logits (Vp) after the last of `count` <= rows tokens at positions t0, t0 + 1, ...; the cache holds the
    // positions before t0.
    template <class Weights> const floatX* next(Weights& weights, const int32_t* ids, int count, int t0);
};

template <class Weights>
const floatX* Decoder::next(Weights& weights, const int32_t* ids, int count, int t0) {
    CHECK(count <= rows && t0 + count <= d.maxT,
          "decoder: %d tokens at position %d of %d", count, t0, d.maxT);
    const Span span{.B = 1, .T = count, .t0 = t0};
    BlockActs& a = acts[0];
    std::copy(ids, ids + count, tokens);
    const auto embed = weights.embed();
    ops::encoder_forward(a.x, embed.wte, embed.wpe,
                         {.tokens = tokens, .v0 = 0, .V = d.Vp, .N = count, .T = count, .C = d.C, .t0 = t0});
    Stream stream{.x = a.x};
    for (int l = 0; l < d.L; l++) {
        a.kv = cache[l];
        a.qkv = cache[l] + size_t(t0) * 3 * d.C;
        stream = block.forward(weights.block(l), a, stream, scratch, span);
    }
    const auto w = weights.final();
    ops::layernorm_forward({.x1 = xf, .y = lnf, .mean = lnf_mean, .rstd = lnf_rstd,
                            .x = stream.x, .r = stream.r, .bias = stream.bias, .w = w.lnfw, .b = w.lnfb},
                           count, d.C);
    ops::matmul_forward(logits, lnf + size_t(count - 1) * d.C, weights.embed().wte, nullptr, 1, d.C, d.Vp);
    return logits;
}

}  // namespace PRECISION
