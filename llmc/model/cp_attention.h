// Attention where the ranks of cp share each row of T tokens: a rank has the chunks of RowPart. Every other
// op of a block works on single tokens. There are two kinds.
//
//     gather   K and V of all ranks are gathered into whole rows. Queries stay: a call of attention for each
//              chunk. Backward gathers again; dK and dV are sums over the chunks and, by a scatter, over the
//              ranks (Llama Team 2024, arXiv 2407.21783, section 3.3.2).
//     heads    An all-to-all trades chunks of all heads for whole rows of NH / cp heads, and back (Jacobs et
//              al. 2023, arXiv 2309.14509): the bits of a single rank.
//
// On one rank both are the plain op.
#pragma once
#include <initializer_list>

#include "llmc/base/numbers/row_part.h"
#include "llmc/comm/axis.h"
#include "llmc/model/dims.h"
#include "llmc/ops/arena.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline model {

// Columns of packed rows: `width` for each rank of cp, those of rank 0 first.
template <class T> struct Columns { T* at; int stride, width; };

struct CpAttention {
    Axis cp = {};
    CpKind kind = CpKind::Gather;
    // Workspaces of all blocks, on several ranks alone. W = (NH + 2 KV) D, R = B T rows.
    floatX* rows = nullptr;         // gather: K and V, (R, 2 KV D); heads: all of some heads, (R, W / cp)
    floatX* drows = nullptr;        // gradients of `rows`
    floatX* by_rank = nullptr;      // rows in the order of the ranks, (cp, N, ...)
    floatX* sent = nullptr;         // heads: as by_rank, of the other direction
    floatX *out = nullptr, *dout = nullptr;     // heads: (R, NH D / cp)

    RowPart part() const { return {cp.index, cp.size}; }
    bool by_heads() const { return kind == CpKind::Heads && cp.size > 1; }
    // N: tokens of this rank.
    void add_to(ArenaOf arena, const Dims& d, size_t N, bool backward);
    size_t reduction_bytes(const Dims& d, size_t N) const;      // of the largest reduction over cp

    // As the ops of attention for this rank's B sequences of d.Tq rows; packed rows have q, k and v side by
    // side. Tables of documents are those of whole rows, (B, T) each.
    void forward(floatX* atty, real* lse, const floatX* q, const floatX* k, const floatX* v,
                 const ops::AttentionDims& d) const;
    // t.dbias: summed on one rank alone; else the caller sums it behind.
    void backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const;
    bool sums_bias() const { return cp.size == 1; }

private:
    void to_rows(floatX* rows, const floatX* by_rank, int B, int T, int width) const;
    void to_ranks(floatX* by_rank, const floatX* rows, int B, int T, int width) const;
    void gather_keys(const floatX* k, const ops::AttentionDims& d) const;
    void take_heads(floatX* whole, std::initializer_list<Columns<const floatX>> columns,
                    const ops::AttentionDims& d) const;
    void give_heads(std::initializer_list<Columns<floatX>> columns, const floatX* whole,
                    const ops::AttentionDims& d) const;
    void gather_forward(floatX* atty, real* lse, const floatX* q, const ops::AttentionDims& d) const;
    void gather_backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const;
    void heads_forward(floatX* atty, real* lse, const floatX* q, const floatX* k, const floatX* v,
                       const ops::AttentionDims& d) const;
    void heads_backward(const ops::AttentionBackward& t, const ops::AttentionDims& d) const;
};

}  // namespace PRECISION::model
