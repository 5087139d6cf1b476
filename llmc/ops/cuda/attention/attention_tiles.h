// Which rows see which, the tiles that follow from it and the work on them: for attention_mma.h and wgmma.h.
#pragma once
#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/cuda/kernel.h"

namespace PRECISION {
namespace cuda {

// Keys that the queries before row `end` see: [0, seen)
HOST_DEVICE inline int seen_before(const AttentionDims& d, int end) {
    const int seen = d.q_offset - d.k_offset + (end < d.Tq ? end : d.Tq);
    return seen < d.Tk ? seen : d.Tk;
}
// The first query that sees key `start`; Tq: no query does.
HOST_DEVICE inline int first_to_see(const AttentionDims& d, int start) {
    const int first = start + d.k_offset - d.q_offset;
    return first < 0 ? 0 : first < d.Tq && start < d.Tk ? first : d.Tq;
}

// One past the last query row that sees any of `rows` keys from `start`; ignores documents.
HOST_DEVICE inline int end_of_keys(const AttentionDims& d, int start, int rows) {
    return d.end_query((start + rows < d.Tk ? start + rows : d.Tk) - 1);
}

// Tiles of N rows from number `first` to row `end`.
HOST_DEVICE inline int tiles_from(int first, int N, int end) {
    const int tiles = div_up(end, N) - first;
    return tiles > 0 ? tiles : 0;
}

// Work on a head, by the tiles that are computed: pairs (query, key) with a score, and rows of the other side
// that blocks read. Blocks have `block` rows and read tiles of N; warps that compute together own `own` rows.
struct Work { double pairs = 0, rows = 0; };

inline Work work_on_queries(const AttentionDims& d, int block, int own, int N) {
    Work sum;
    for (int start = 0; start < d.Tq; start += own) {
        const int first = d.first_key(start) / N;           // tile
        sum.pairs += double(own * N) * (div_up(seen_before(d, start + own), N) - first);
        if (start % block) continue;
        const int keys = div_up(seen_before(d, start + block), N) * N;
        sum.rows += (keys < d.Tk ? keys : d.Tk) - first * N;
    }
    return sum;
}
inline Work work_on_keys(const AttentionDims& d, int block, int own, int N) {
    Work sum;
    for (int start = 0; start < d.Tk; start += own) {
        const int first = first_to_see(d, start) / N;
        if (first_to_see(d, start) == d.Tq) continue;
        sum.pairs += double(own * N) * tiles_from(first, N, end_of_keys(d, start, own));
        const int end = tiles_from(first, N, end_of_keys(d, start, block)) * N + first * N;
        if (start % block == 0) sum.rows += (end < d.Tq ? end : d.Tq) - first * N;
    }
    return sum;
}

// The head sizes for which a kernel is compiled.
template <int... Sizes> struct HeadSizes {
    static constexpr bool has(int D) { return sizeof(floatX) == 2 && ((D == Sizes) || ...); }
    // Calls f(D as a constant) if D is one of the sizes.
    template <class F> static void with(int D, F f) {
        if constexpr (sizeof(floatX) == 2)
            ((D == Sizes ? f(std::integral_constant<int, Sizes>()) : void()), ...);
    }
};

// Over the four lanes that share a row of an accumulator.
static __device__ __forceinline__ float quad_max(float v) {
    v = fmaxf(v, __shfl_xor_sync(kFullWarp, v, 1));
    return fmaxf(v, __shfl_xor_sync(kFullWarp, v, 2));
}
static __device__ __forceinline__ float quad_sum(float v) {
    v += __shfl_xor_sync(kFullWarp, v, 1);
    return v + __shfl_xor_sync(kFullWarp, v, 2);
}

}  // namespace cuda
}  // namespace PRECISION
