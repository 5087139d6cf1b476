// Tiles of attention by wgmma and TMA, on Hopper: for wgmma_forward.cu, wgmma_queries.cu and wgmma_keys.cu.
//
// A block's groups of warps are those of warp_groups.h. Each consumer owns 64 of the block's 128 rows; values
// of pairs of rows stay in registers, where they are the left operand of the next product. A block takes 128
// rows a turn, of any head, the longest first.
//
// A tile of n rows and D channels lies as D / 64 slabs of (n, 64) elements, as TMA swizzles them.
#pragma once
#include "llmc/ops/cuda/attention/attention_head.h"
#include "llmc/ops/cuda/attention/attention_sums.h"
#include "llmc/ops/cuda/attention/attention_tiles.h"
#include "llmc/ops/cuda/tensor_map.h"
#include "llmc/ops/cuda/warp_groups.h"

namespace PRECISION {
namespace cuda {

// The block of the order that this block computes in its n-th turn. Every other turn goes backwards: the
// sums of lengths are alike.
static __device__ __forceinline__ unsigned block_of_turn(unsigned n) {
    return n * gridDim.x + (n % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}
static unsigned grid_of(const HeadOrder& order) {
    return std::min(order.blocks, unsigned(cuda_device().processors));
}

// Where rows of a tile are read without wgmma: the 16 bytes at `column`, a multiple of 8, of a row.
template <int Rows>
static __device__ __forceinline__ const floatX* swizzled(const floatX* tile, int row, int column) {
    return tile + (column / kBoxColumns * Rows + row) * kBoxColumns + (column % kBoxColumns ^ row % 8 * 8);
}

// Starts to copy a tile of N rows from `row` on to shared memory.
template <int D, int N>
static __device__ __forceinline__ void load_rows(floatX* to, const CUtensorMap* map, uint64_t* arrives,
                                                 int head, int row, int sequence) {
    for (int i = 0; i < D / kBoxColumns; i++)
        ptx::tma_load_4d(to + i * N * kBoxColumns, map, arrives, i * kBoxColumns, head, row, sequence);
}

// Starts s (64, N) = A B^T, for 64 rows of a tile of `Rows` rows and the N rows of a tile.
template <int D, int Rows, int N>
static __device__ __forceinline__ void products(float (&s)[N / 2], const floatX* A, const floatX* B) {
    #pragma unroll
    for (int c = 0; c < D / 16; c++) {
        const int slab = 16 * c / kBoxColumns, column = 16 * c % kBoxColumns;
        ptx::wgmma<ptx::Major::K, ptx::Major::K>(
            s, ptx::wgmma_descriptor(A + slab * Rows * kBoxColumns + column, 16, 1024),
            ptx::wgmma_descriptor(B + slab * N * kBoxColumns + column, 16, 1024), c > 0);
    }
}

// A left operand (64, N) in registers: weights, rounded.
template <int N> struct Weights {
    uint32_t of[N / 16][4];

    __device__ __forceinline__ void round(const float (&w)[N / 2]) {
        #pragma unroll
        for (int i = 0; i < N / 4; i++) of[i / 4][i % 4] = ptx::pack_bf16(w[2 * i], w[2 * i + 1]);
    }
};

// Starts sum (64, D) += W B, for the N rows of a tile.
template <int D, int N>
static __device__ __forceinline__ void add_weighted(float (&sum)[D / 2], const Weights<N>& W,
                                                    const floatX* B) {
    #pragma unroll
    for (int r = 0; r < N / 16; r++)
        ptx::wgmma<ptx::Major::MN>(
            sum, W.of[r],
            ptx::wgmma_descriptor(B + 16 * r * kBoxColumns, N * kBoxColumns * sizeof(floatX), 1024), true);
}

// Scores for which hidden(which of the two rows, column from the first) holds become -inf.
template <int R, class Hidden> static __device__ __forceinline__ void hide(float (&s)[R], Hidden hidden) {
    #pragma unroll
    for (int i = 0; i < R; i++)
        if (hidden(i / 2 % 2, column_of(i))) s[i] = -INFINITY;
}

// The tiles of N keys that some of `rows` queries from `start` see.
struct KeyTiles { int from, end; };
template <int N, bool Bounded>
static __device__ __forceinline__ KeyTiles tiles_of(const AttentionDims& d, int start, int rows,
                                                    int sequence) {
    return {Bounded ? d.first_key(start, sequence) / N : 0, div_up(seen_before(d, start + rows), N)};
}

// The first and the last key that each of this thread's two queries sees, and all queries of its consumer do.
template <bool Bounded> struct KeysSeen {
    int from[2] = {}, last[2], all_from = 0, all_last;

    // first: the consumer's first query
    __device__ __forceinline__ KeysSeen(const AttentionDims& d, int first, int sequence) {
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int t = first + row_of_group() + 8 * r;
            last[r] = min(d.apart() + t, d.Tk - 1);
            if constexpr (Bounded) from[r] = d.first_key(min(t, d.Tq - 1), sequence);
        }
        all_last = min(d.apart() + first, d.Tk - 1);
        if constexpr (Bounded) all_from = d.first_key(min(first + kOwn, d.Tq) - 1, sequence);
    }
    // Scores of other keys of tile j become -inf.
    template <int R> __device__ __forceinline__ void hide_others(float (&s)[R], int j) const {
        constexpr int N = 2 * R;
        const int column = j * N + first_column();
        if ((j + 1) * N - 1 > all_last) hide(s, [&](int r, int c) { return c > last[r] - column; });
        if (Bounded && j * N < all_from) hide(s, [&](int r, int c) { return c < from[r] - column; });
    }
};

// Stores the first `rows` of a consumer's 64 rows, times the factors of this thread's two; rows may be <= 0.
// sums: (4, D) floats of shared memory for the column sums of each warp's rows, as stored; or null
template <int D>
static __device__ __forceinline__ void store_rows(floatX* to, size_t stride, int rows,
                                                  const float (&sum)[D / 2], float factor,
                                                  float factor_of_second, float* sums = nullptr) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
    #pragma unroll
    for (int c = 0; c < D; c += 32) {                   // four times eight channels
        float of_columns[8] = {};                       // columns c + 8 i + first_column(), and the next
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = row_of_group() + 8 * r;
            const float f = r ? factor_of_second : factor;
            uint32_t w[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* pair = sum + c / 2 + 4 * i + 2 * r;
                w[i] = ptx::pack_bf16(pair[0] * f, pair[1] * f);
                if (row < rows)
                    of_columns[2 * i] += __uint_as_float(w[i] << 16),
                        of_columns[2 * i + 1] += __uint_as_float(w[i] & 0xffff0000u);
            }
            transpose_quad(w);
            if (row < rows)
                ptx::store16_global(to + row * stride + c + lane % 4 * 8, {w[0], w[1], w[2], w[3]});
        }
        if (!sums) continue;
        const float total = sum_of_8(of_columns);       // of value lane / 4
        sums[warp * D + c + lane / 8 * 8 + lane / 4 % 2 + first_column()] = total;
    }
}

// to[c] = the sum of what store_rows() left in `sums`, by a consumer's threads.
template <int D>
static __device__ __forceinline__ void store_sums_of_group(float* to, const float* sums) {
    store_sums<D>(to, sums, threadIdx.x % kGroup, kGroup);
}

// The variant Pass<D>: floor() and run() for heads of D channels, as in the table of a file.
template <class Tensors, template <int> class Pass, int D>
static constexpr AttentionVariant<Tensors> wgmma_variant(const char* name) {
    const auto supports = [](int size) {
        return size == D && runs_wgmma(Pass<D>::Tiles::bytes);
    };
    return {name, supports, Pass<D>::floor, Pass<D>::run, true};
}

}  // namespace cuda
}  // namespace PRECISION
