// The order of attention's blocks: from the number of a block to its head and rows.
//
// All blocks of a head read its keys and values; for dk and dv, its queries and their gradients. The grid
// goes through groups of heads whose rows fit in an eighth of L2 (H100 has L2 in two halves): memory is read
// once. Within a group the longest block of each head starts first: the launch ends with short blocks.
#pragma once
#include <type_traits>

#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cuda {

// The factor of the scores: AttentionDims::scale, or 1 / sqrt(D).
inline double attention_scale(const AttentionDims& d) {
    return d.scale > 0 ? d.scale : 1 / sqrt(double(d.D));
}

// f(constant of whether a window or a document's begin hides a key): else kernels have no code for it.
template <class F> void with_bounds(const AttentionDims& d, F f) {
    if (d.bounded()) f(std::true_type());
    else f(std::false_type());
}

struct HeadOrder {
    int heads, of_sequence;         // of all sequences, of one
    int sharing;                    // heads of queries of a head of keys
    int tiles;                      // blocks of a head
    int together;                   // heads whose blocks are neighbours in the grid
    bool last_first;                // tiles of a head start from the last to the first
    unsigned blocks;                // of all heads
};

// read: rows, in two tensors, that all blocks of a head read
inline HeadOrder head_order(const AttentionDims& d, int of_sequence, int tiles, int read, bool last_first) {
    const size_t of_head = 2 * size_t(read) * size_t(d.D) * sizeof(floatX);
    const size_t fit = cuda_device().l2_bytes / 8 / (of_head < 1 ? 1 : of_head);
    const int heads = d.B * of_sequence;
    return {heads, of_sequence, d.group(), tiles, fit < 1 ? 1 : fit < size_t(heads) ? int(fit) : heads,
            last_first, unsigned(heads * tiles)};
}
// Blocks of `rows` queries, or keys. The last queries see the most keys, the first keys are seen most.
inline HeadOrder blocks_of_queries(const AttentionDims& d, int rows) {
    return head_order(d, d.NH, div_up(d.Tq, rows), d.Tk, true);
}
inline HeadOrder blocks_of_keys(const AttentionDims& d, int rows) {
    return head_order(d, d.KV(), div_up(d.Tk, rows), d.Tq * d.group(), false);
}

// A block's head of a sequence, of queries or of keys, and offsets of the head's first row. Of a head of
// keys, queries(), outputs() and statistics() are those of its head `i` of queries.
template <bool OfKeys> struct Head {
    int head;                       // head h of sequence b is b order.of_sequence + h
    int tile;                       // of the head's queries or keys

    __device__ __forceinline__ explicit Head(const HeadOrder& order, int block = blockIdx.x) {
        const int first = block / (order.together * order.tiles) * order.together;
        const int i = block - first * order.tiles;
        const int together = first + order.together < order.heads ? order.together : order.heads - first;
        const int started = i / together;
        head = first + i % together;
        tile = order.last_first ? order.tiles - 1 - started : started;
    }
    __device__ __forceinline__ int sequence(const HeadOrder& order) const { return head / order.of_sequence; }
    __device__ __forceinline__ int of_queries(const HeadOrder& order, int i) const {
        const int h = head % order.of_sequence;
        return OfKeys ? h * order.sharing + i : h;
    }
    __device__ __forceinline__ int of_keys(const HeadOrder& order) const {
        const int h = head % order.of_sequence;
        return OfKeys ? h : h / order.sharing;
    }
    __device__ __forceinline__ size_t queries(const AttentionDims& d, const HeadOrder& order,
                                              int i = 0) const {
        return size_t(sequence(order)) * d.Tq * d.q_stride + size_t(of_queries(order, i)) * d.D;
    }
    __device__ __forceinline__ size_t keys(const AttentionDims& d, const HeadOrder& order) const {
        return size_t(sequence(order)) * d.Tk * d.kv_stride + size_t(of_keys(order)) * d.D;
    }
    __device__ __forceinline__ size_t outputs(const AttentionDims& d, const HeadOrder& order,
                                              int i = 0) const {
        return (size_t(sequence(order)) * d.Tq * d.NH + of_queries(order, i)) * d.D;
    }
    __device__ __forceinline__ size_t statistics(const AttentionDims& d, const HeadOrder& order,
                                                 int i = 0) const {
        return size_t(OfKeys ? head * order.sharing + i : head) * d.Tq;
    }
};
using QueryHead = Head<false>;
using KeyHead = Head<true>;

}  // namespace cuda
}  // namespace PRECISION
