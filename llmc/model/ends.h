// The ends of the model: the embedding, and the final norm before the head. In forward they are the same for
// training and generation.
#pragma once
#include "llmc/model/block.h"
#include "llmc/model/layout.h"

namespace PRECISION::inline model {

// Activations of the norm right after the embedding, kept for backward; without embed_norm none.
struct EmbedActs {
    floatX* raw;          // (n, C)       the embedded tokens
    real *mean, *rstd;    // (n)          mean: if the norm has one
};
void add_embed_acts(ArenaOf arena, const char* name, EmbedActs& a, const Dims& d, size_t n);

// Activations of the final norm and the head, kept for backward.
struct HeadActs {
    floatX* xf;           // (n, C)       the residual stream after the last block
    floatX* lnf;          // (n, C)
    real *mean, *rstd;    // (n)          mean: if the norm has one
};
void add_head_acts(ArenaOf arena, const char* name, HeadActs& a, const Dims& d, size_t n);

// y = norm(a.raw)
inline ops::Layernorm norm_of_embedding(const EmbedTensors<floatX>& w, const EmbedActs& a, floatX* y,
                                        const Dims& d) {
    return norm({.x = a.raw}, a.raw, y, a.mean, a.rstd, w.lnew, w.lneb, d);
}
// a.xf = in, a.lnf = norm(a.xf)
inline ops::Layernorm norm_of_head(const FinalTensors<floatX>& w, const HeadActs& a, Stream in,
                                   const Dims& d) {
    return norm(in, a.xf, a.lnf, a.mean, a.rstd, w.lnfw, w.lnfb, d);
}

// x (n, C) = this rank's rows of the embedded tokens, or with embed_norm their norm. scratch: (N, C) where tp
// cuts the stream.
template <class W>
void embed(W& weights, const Axis& tp, const EmbedActs& a, floatX* x, floatX* scratch, const ops::Encoder& e,
           const Dims& d) {
    const auto w = weights.embed();
    const Slice slice(tp, e.N);
    floatX* const raw = d.kind.embed_norm ? a.raw : x;
    floatX* whole = tp.whole(raw, scratch);
    ops::encoder_forward(whole, w.wte, w.wpe, e);
    tp.reduce_scatter(raw, whole, size_t(slice.n) * size_t(e.C));
    if (d.kind.embed_norm) ops::layernorm_forward(norm_of_embedding(w, a, x, d), slice.mine, e.C);
}
// lnf (rows, C) = norm(stream); rows: this rank's.
template <class W>
void final_norm(W& weights, const HeadActs& a, const Stream& stream, int rows, const Dims& d) {
    ops::layernorm_forward(norm_of_head(weights.final(), a, stream, d), rows, d.C);
}

}  // namespace PRECISION::model
