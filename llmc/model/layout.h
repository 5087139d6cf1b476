// Where every tensor lies in the flat buffers of parameters, gradients, master weights and moments.
//
// A flat buffer is a row of buckets: the embedding, each block, the final norm. A bucket is what is gathered,
// reduced and sharded at once. Tensors start at multiples of 64 elements; the gaps are zero and stay zero.
#pragma once
#include <string>
#include <vector>

#include "llmc/model/params.h"

struct Tensor {
    std::string name;      // "wte", "h.3.qkvw", "lnfw"
    Param param;
    int layer;             // -1 outside blocks
    size_t start;          // in the flat buffers
    uint64_t global;       // index of its first element in the whole model: the key of its random numbers
};

struct Layout {
    std::vector<Tensor> tensors;
    std::vector<size_t> buckets;    // first element of bucket i; one more at the end
    size_t parameters = 0;          // without padding of any kind
    size_t size() const { return buckets.back(); }
    size_t embed() const { return buckets[0]; }
    size_t block(int l) const { return buckets[size_t(l) + 1]; }
    size_t final() const { return buckets[buckets.size() - 2]; }
};

inline constexpr size_t kTensorAlign = 64;

Layout make_layout(const Dims& d);

// Points every slot of a group at its tensor; `memory` is the first element of the group's bucket.
template <class G, class T> void point_slots(G& group, T* memory, const std::vector<Slot<G>>& table) {
    for (const auto& row : table) {
        group.*(row.slot) = memory;
        memory += (row.param.count() + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    }
}
template <class T> EmbedTensors<T> bind_embed(T* bucket, const Dims& d) {
    EmbedTensors<T> g;
    point_slots(g, bucket, embed_params<T>(d));
    return g;
}
template <class T> BlockTensors<T> bind_block(T* bucket, const Dims& d) {
    BlockTensors<T> g;
    point_slots(g, bucket, block_params<T>(d));
    return g;
}
template <class T> FinalTensors<T> bind_final(T* bucket, const Dims& d) {
    FinalTensors<T> g;
    point_slots(g, bucket, final_params<T>(d));
    return g;
}
