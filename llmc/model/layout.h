// Layout of a rank: its blocks, and the place of every tensor in the flat buffers of parameters, gradients,
// master weights and moments.
//
// A flat buffer is a row of buckets: wte, the rest of the embedding, each block, the final group. A
// collective gathers or reduces one bucket; its size is a multiple of 64 times the number of parts. Tensors
// start at multiples of 64 elements; the gaps are zero and stay zero.
//
// The caller may have some tensors at the end of their bucket, and order these.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "llmc/base/numbers/interval.h"
#include "llmc/model/params.h"

inline namespace model {

// Blocks begin to end - 1 of the blocks here, run together. The chunk that embeds turns tokens into the
// stream; the chunk that ends turns the stream into a loss.
struct Chunk {
    int begin, end;
    bool embeds, ends;
};

// A rank's part of the model.
struct Part {
    std::vector<int> layers;        // number in the whole model of each block here
    std::vector<Chunk> chunks;
    bool first, last;               // a chunk embeds, a chunk ends; either part holds a tied wte
};

inline Part whole_model(int L) {
    Part part{.layers = {}, .chunks = {{0, L, true, true}}, .first = true, .last = true};
    part.layers.resize(size_t(L));
    std::iota(part.layers.begin(), part.layers.end(), 0);
    return part;
}

// 0, 1, ...: the blocks here, in the order of a forward of each chunk.
inline std::vector<int> blocks_of(const Part& part) {
    std::vector<int> blocks(part.layers.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    return blocks;
}

struct Tensor {
    std::string name;      // "wte", "h.3.qkvw", "lnfw"
    Param param;
    int layer;             // in the whole model; -1 outside blocks
    int bucket;
    size_t member;         // place of its pointer in the group's struct
    size_t start;          // in the flat buffers
    bool trailing;
    uint64_t global;       // index of the whole tensor's first element in the whole model: the key of its
                           // random numbers
};

struct Layout {
    std::vector<Tensor> tensors;    // by start
    // Offsets of tensors in their bucket, by member of the group's struct; kAbsent: not there. block_at: of
    // each block here.
    std::vector<size_t> embed_at, final_at;
    std::vector<std::vector<size_t>> block_at;
    std::vector<size_t> buckets;    // first element of bucket i; one more at the end
    std::vector<size_t> leading;    // elements of bucket i before its trailing tensors
    std::vector<size_t> coded;      // elements of bucket i before those of Packing::coded, which end it
    size_t parameters = 0;          // of the whole model, without padding of any kind
    // Bucket numbers; -1: not on this rank. blocks: bucket of the first block here.
    int wte = -1, embed = -1, blocks = -1, final = -1;

    int block(int l) const { return blocks + l; }           // l: of the blocks here
    size_t start(int bucket) const { return buckets[size_t(bucket)]; }
    size_t size(int bucket) const { return buckets[size_t(bucket) + 1] - buckets[size_t(bucket)]; }
    size_t size() const { return buckets.back(); }
    int count() const { return int(buckets.size()) - 1; }
    // A tensor without padding, counted from the start of its bucket.
    Interval in_bucket(const Tensor& t) const { return {t.start - start(t.bucket), t.param.used()}; }
};

inline constexpr size_t kTensorAlign = 64, kAbsent = SIZE_MAX;
inline size_t aligned(size_t count) { return (count + kTensorAlign - 1) / kTensorAlign * kTensorAlign; }

// How tensors lie in a bucket.
struct Packing {
    size_t parts = 1;                           // the size of a bucket is a multiple of 64 x parts
    std::vector<std::string> trailing = {};     // names of params.h ("qkvw"), at the end of their bucket
    std::vector<std::string> coded = {};        // names: behind the others that do not trail
    // May reorder a bucket's trailing tensors. at: element where the first starts. size: of the bucket.
    std::function<void(std::vector<Tensor*>& trailing, size_t at, size_t size)> order = {};
};
Layout make_layout(const Dims& d, const Part& part, const Packing& packing = {});

// The tensors of the whole model, in the order of counting and saving; `start` and `bucket` are undefined.
std::vector<Tensor> whole_tensors(const Dims& d);

// Calls f(local, global, n) for each run of elements of t that is contiguous here and in the whole tensor,
// within some elements of t as stored: `n` elements, from `local` on in the tensor here, from `global` on in
// the whole tensor. Padding is left out.
template <class F> void for_each_run(const Tensor& t, Interval elements, F&& f) {
    const Param& p = t.param;
    const bool rows_join = p.cols == p.whole_cols;
    const size_t cols = size_t(p.cols), whole_cols = size_t(p.whole_cols);
    for (size_t at = elements.begin, end = elements.end(), n; at < end; at += n) {
        // Of the matrix that has the row: first row, number of rows, here and in the whole tensor; which of
        // its whole rows is the first here.
        const size_t row = at / cols;
        size_t begin = 0, rows = size_t(p.rows), whole_begin = 0, whole_rows = size_t(p.whole_rows);
        size_t first_row = size_t(p.first_row);
        for (size_t m = 0; m < p.fused.size() && p.is_fused(); m++) {
            rows = size_t(p.fused[m]);
            whole_rows = rows * size_t(p.tp);
            first_row = rows * size_t(p.tp_index);
            if (row < begin + rows) break;
            begin += rows;
            whole_begin += whole_rows;
        }
        const size_t in_matrix = first_row + row - begin;
        n = std::min(end, (rows_join ? begin + rows : row + 1) * cols) - at;
        if (in_matrix >= whole_rows) continue;
        const size_t there = rows_join ? (whole_rows - in_matrix) * cols - at % cols : n;
        f(at, (whole_begin + in_matrix) * whole_cols + size_t(p.first_col) + at % cols, std::min(n, there));
    }
}

// A group whose members point at its tensors. memory: the first element of the group's bucket.
template <class G, class T> G bind(T* memory, const std::vector<size_t>& at) {
    std::array<T*, sizeof(G) / sizeof(T*)> members = {};
    for (size_t i = 0; i < at.size(); i++)
        if (at[i] != kAbsent) members[i] = memory + at[i];
    return std::bit_cast<G>(members);
}
// wte, bucket: the first element of layout.wte and layout.embed.
template <class T> EmbedTensors<T> bind_embed(T* wte, T* bucket, const Layout& layout) {
    auto g = bind<EmbedTensors<T>>(bucket, layout.embed_at);
    g.wte = wte;
    return g;
}
// l: of the blocks here.
template <class T> BlockTensors<T> bind_block(T* bucket, int l, const Layout& layout) {
    return bind<BlockTensors<T>>(bucket, layout.block_at[size_t(l)]);
}
template <class T> FinalTensors<T> bind_final(T* bucket, const Layout& layout) {
    return bind<FinalTensors<T>>(bucket, layout.final_at);
}

// The head: final.headw, or the tied wte without a bias.
template <class T> struct HeadTensors { T *w, *b; };
template <class T> HeadTensors<T> head_of(T* wte, const FinalTensors<T>& final, const Dims& d) {
    return d.kind.tied ? HeadTensors<T>{wte, nullptr} : HeadTensors<T>{final.headw, final.headb};
}

}  // namespace model
