// The order of attention's blocks: from the number of a block to its head and rows.
//
// All blocks of a head read its keys and values; for dk and dv, its queries and their gradients. The grid
// goes through groups of heads whose rows fit in an eighth of L2 (H100 has L2 in two halves): memory is read
// once. Within a group the longest block of each head starts first: the launch ends with short blocks.
#pragma once
#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// The factor of the scores: AttentionDims::scale, or 1 / sqrt(D).
inline double attention_scale(const AttentionDims& d) {
    return d.scale > 0 ? d.scale : 1 / sqrt(double(d.D));
}

struct HeadOrder {
    int tiles;                      // blocks of a head
    int group;                      // heads whose blocks are neighbours in the grid
    bool last_first;                // tiles of a head start from the last to the first
    unsigned blocks;                // of all heads
};

// read: rows of a head that all its blocks read, in two tensors
inline HeadOrder head_order(const AttentionDims& d, int tiles, int read, bool last_first) {
    const size_t of_head = 2 * size_t(read) * size_t(d.D) * sizeof(floatX);
    const size_t fit = cuda_device().l2_bytes / 8 / (of_head < 1 ? 1 : of_head);
    const int heads = d.B * d.NH;
    return {tiles, fit < 1 ? 1 : fit < size_t(heads) ? int(fit) : heads, last_first, unsigned(heads * tiles)};
}
// Blocks of `rows` queries, or keys. The last queries see the most keys, the first keys are seen most.
inline HeadOrder blocks_of_queries(const AttentionDims& d, int rows) {
    return head_order(d, div_up(d.Tq, rows), d.Tk, true);
}
inline HeadOrder blocks_of_keys(const AttentionDims& d, int rows) {
    return head_order(d, div_up(d.Tk, rows), d.Tq, false);
}

// A block's head of a sequence, and offsets of the head's first row.
struct Head {
    int head;                       // head h of sequence b is b NH + h
    int tile;                       // of the head's queries or keys

    __device__ __forceinline__ Head(const AttentionDims& d, const HeadOrder& order, int block = blockIdx.x) {
        const int heads = d.B * d.NH;
        const int first = block / (order.group * order.tiles) * order.group, i = block - first * order.tiles;
        const int together = first + order.group < heads ? order.group : heads - first;
        const int started = i / together;
        head = first + i % together;
        tile = order.last_first ? order.tiles - 1 - started : started;
    }
    __device__ __forceinline__ size_t queries(const AttentionDims& d) const {
        return size_t(head / d.NH) * d.Tq * d.q_stride + size_t(head % d.NH) * d.D;
    }
    __device__ __forceinline__ size_t keys(const AttentionDims& d) const {
        return size_t(head / d.NH) * d.Tk * d.kv_stride + size_t(head % d.NH) * d.D;
    }
    __device__ __forceinline__ size_t outputs(const AttentionDims& d) const {
        return (size_t(head / d.NH) * d.Tq * d.NH + head % d.NH) * d.D;
    }
    __device__ __forceinline__ size_t statistics(const AttentionDims& d) const {
        return size_t(head) * d.Tq;
    }
};

}  // namespace cuda
}  // namespace PRECISION
