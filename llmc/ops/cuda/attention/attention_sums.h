// Column sums of dq, dk and dv for the gradient of a bias: each part of a block of rows leaves the sums of
// its rows, as stored, and sums.cu adds up the parts.
#pragma once
#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/cuda/attention/attention_head.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

// Of dq: columns of all heads. Of dk and dv: a row has those of dk, then those of dv.
struct PartialSums {
    float* rows;                    // (sequences, tiles, parts, width), or null: no sums are wanted
    int parts, width;

    // The columns of head h, of one part of a block.
    __device__ __forceinline__ float* at(const HeadOrder& order, int sequence, int tile, int part, int h,
                                         int D) const {
        const size_t row = (size_t(sequence) * order.tiles + tile) * parts + part;
        return rows + row * width + h * D;
    }
    int count(const HeadOrder& order) const { return order.heads / order.of_sequence * order.tiles * parts; }
    // The kernel's floor with these sums.
    Floor with(Floor f, const HeadOrder& order) const {
        if (rows) f.bytes += 4. * count(order) * width;
        return f;
    }
};

// parts: of a block, at most kAttentionSums for 128 rows. by_kernel: whether the kernel sums
inline PartialSums sums_of_queries(const AttentionGradients& g, const AttentionDims& d, int parts,
                                   bool by_kernel) {
    return {g.t.dbias && by_kernel ? g.sums : nullptr, parts, d.NH * d.D};
}
inline PartialSums sums_of_keys(const AttentionGradients& g, const AttentionDims& d, int parts) {
    return {g.t.dbias ? g.sums : nullptr, parts, 2 * d.KV() * d.D};
}

// dbias += what the kernel has left, or, where the kernel sums nothing, the columns of dq.
inline void add_queries(const PartialSums& s, const AttentionGradients& g, const AttentionDims& d,
                        const HeadOrder& order) {
    if (!g.t.dbias) return;
    if (!s.rows) return add_rows(g.t.dbias, g.sums, g.t.dq, d.B * d.Tq, s.width, d.q_stride);
    add_columns({.out = {g.t.dbias}, .partial = s.rows, .rows = s.count(order), .columns = s.width});
}
inline void add_keys(const PartialSums& s, const AttentionGradients& g, const AttentionDims& d,
                     const HeadOrder& order) {
    if (!s.rows) return;
    float* const dk = g.t.dbias + size_t(d.NH) * size_t(d.D);
    add_columns({.out = {dk, dk + s.width / 2}, .partial = s.rows, .rows = s.count(order),
                 .columns = s.width / 2});
}

// to[c], c < D, = the sum of four warps' sums, warp after warp; by `threads` threads, this one's number being
// `thread`. warps: (4, D) in shared memory
template <int D>
static __device__ __forceinline__ void store_sums(float* to, const float* warps, int thread, int threads) {
    for (int c = thread; c < D; c += threads)
        to[c] = warps[c] + warps[D + c] + warps[2 * D + c] + warps[3 * D + c];
}

}  // namespace cuda
}  // namespace PRECISION
