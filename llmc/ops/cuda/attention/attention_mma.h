// Tiles of attention by tensor cores, for attention_mma.cu and attention_mma_backward.cu.
//
// A block owns 64 M rows of a head, a warp 16 M rows: queries, or keys for gradients of keys. The rows of the
// other side come N at a time; cp.async loads the next tile while a tile is used. Values of pairs of rows
// stay in registers: the accumulators of a product are, packed, the left operand of the next product. A warp
// skips tiles that none of its rows sees: above the diagonal, and if Bounded before the window or in another
// document.
//
// Rows of a tile are D + 8 elements apart: the eight rows of an ldmatrix lie in different banks.
#pragma once
#include "llmc/ops/cuda/attention/attention.h"
#include "llmc/ops/cuda/attention/attention_head.h"
#include "llmc/ops/cuda/attention/attention_sums.h"
#include "llmc/ops/cuda/attention/attention_tiles.h"
#include "llmc/ops/cuda/kernel.h"

namespace PRECISION {
namespace cuda {

static constexpr int kWarps = 4, kThreads = 32 * kWarps;

template <int D> inline constexpr int kPitch = D + 8;

// A head's first row in a tensor, and elements from row to row.
struct Rows {
    const floatX* first;
    size_t stride;
};

// Starts to copy rows [start, start + N) of a to shared memory at `to`, and of b to `to + apart` (0: no b).
// Rows from `end` on become zeros.
template <int D, int N>
static __device__ __forceinline__ void fetch_rows(floatX* to, Rows a, int apart, Rows b, int start, int end) {
    constexpr int packs = D / Pack::size, at_once = kThreads / packs;
    const int first = threadIdx.x / packs, c = threadIdx.x % packs * Pack::size;
    if (kThreads % packs && first == at_once) return;
    to += first * kPitch<D> + c;
    a.first += size_t(start + first) * a.stride + c, b.first += size_t(start + first) * b.stride + c;
    #pragma unroll 1                            // unrolled, the loop needs too many registers
    for (int row = start + first; row < start + N; row += at_once) {
        ptx::cp_async16(to, a.first, row < end);
        if (apart) ptx::cp_async16(to + apart, b.first, row < end);
        to += at_once * kPitch<D>, a.first += at_once * a.stride, b.first += at_once * b.stride;
    }
}

// A warp's (16 M, D) left operand: held in registers, or read from shared memory each time.
template <int D, int M, bool Held> struct Left {
    const floatX* row;                          // of this lane, for ldmatrix
    uint32_t held[Held ? D / 16 : 1][M][4];

    // first: the warp's first row
    __device__ __forceinline__ explicit Left(const floatX* first) {
        const int lane = threadIdx.x % 32;
        row = first + lane % 16 * kPitch<D> + lane / 16 * 8;
        if constexpr (Held)
            #pragma unroll
            for (int c = 0; c < D / 16; c++) read(held[c], c);
    }
    __device__ __forceinline__ void read(uint32_t (&a)[M][4], int c) const {
        #pragma unroll
        for (int m = 0; m < M; m++) ptx::ldmatrix_x4(a[m], row + 16 * m * kPitch<D> + 16 * c);
    }
    // channels 16c .. 16c + 15
    __device__ __forceinline__ void get(uint32_t (&a)[M][4], int c) const {
        if constexpr (Held)
            #pragma unroll
            for (int i = 0; i < 4 * M; i++) a[i / 4][i % 4] = held[c][i / 4][i % 4];
        else
            read(a, c);
    }
};

// s (16 M, N) = A B^T, for the rows of B (N, D) in shared memory
template <int D, int M, int N, bool Held>
static __device__ __forceinline__ void products(float (&s)[M][N / 8][4], const Left<D, M, Held>& A,
                                                const floatX* B) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int i = 0; i < M * N / 2; i++) s[i / (N / 2)][i / 4 % (N / 8)][i % 4] = 0;
    #pragma unroll
    for (int c = 0; c < D / 16; c++) {
        uint32_t a[M][4];
        A.get(a, c);
        #pragma unroll
        for (int j = 0; j < N / 8; j += 2) {
            // rows 8j .. 8j + 15, channels 16c .. 16c + 15: two operands of (16 channels, 8 rows)
            const int row = 8 * j + lane % 8 + lane / 16 * 8, channel = 16 * c + lane / 8 % 2 * 8;
            uint32_t b[4];
            ptx::ldmatrix_x4(b, B + row * kPitch<D> + channel);
            #pragma unroll
            for (int m = 0; m < M; m++) {
                ptx::mma_bf16(s[m][j], a[m], {b[0], b[1]});
                ptx::mma_bf16(s[m][j + 1], a[m], {b[2], b[3]});
            }
        }
    }
}

// sum (16 M, D) += w B, for weights w (16 M, N) and rows of B (N, D) in shared memory
template <int D, int M, int N>
static __device__ __forceinline__ void add_weighted(float (&sum)[M][D / 8][4], const float (&w)[M][N / 8][4],
                                                    const floatX* B) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int c = 0; c < N / 16; c++) {
        uint32_t a[M][4];
        #pragma unroll
        for (int m = 0; m < M; m++)
            #pragma unroll
            for (int i = 0; i < 4; i++)
                a[m][i] = ptx::pack_bf16(w[m][2 * c + i / 2][i % 2 * 2], w[m][2 * c + i / 2][i % 2 * 2 + 1]);
        #pragma unroll
        for (int j = 0; j < D / 8; j += 2) {
            // rows 16c .. 16c + 15, channels 8j .. 8j + 15: two operands of (16 rows, 8 channels)
            const int row = 16 * c + lane % 16, channel = 8 * j + lane / 16 * 8;
            uint32_t b[4];
            ptx::ldmatrix_x4_trans(b, B + row * kPitch<D> + channel);
            #pragma unroll
            for (int m = 0; m < M; m++) {
                ptx::mma_bf16(sum[m][j], a[m], {b[0], b[1]});
                ptx::mma_bf16(sum[m][j + 1], a[m], {b[2], b[3]});
            }
        }
    }
}

// Scores of pairs (row of the warp, row of the tile) for which hidden(row, column) holds become -inf.
template <int M, int N, class Hidden>
static __device__ __forceinline__ void hide(float (&s)[M][N / 8][4], Hidden hidden) {
    const int lane = threadIdx.x % 32;
    #pragma unroll
    for (int i = 0; i < M * N / 2; i++) {
        const int m = i / (N / 2), c = i / 4 % (N / 8), k = i % 4;
        if (hidden(16 * m + lane / 4 + k / 2 * 8, 8 * c + 2 * (lane % 4) + k % 2)) s[m][c][k] = -INFINITY;
    }
}

// Stores the first `rows` of a warp's 16 M rows to global memory, each times its factor. own: the place of
// the warp's rows in shared memory, through which the rows pass.
template <int D, int M>
static __device__ __forceinline__ void store_rows(floatX* to, size_t stride, int rows, floatX* own,
                                                  const float (&sum)[M][D / 8][4],
                                                  const float (&factor)[M][2]) {
    const int lane = threadIdx.x % 32;
    __syncwarp();                               // all lanes have read their operand from there
    #pragma unroll
    for (int m = 0; m < M; m++)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            floatX* row = own + (16 * m + 8 * r + lane / 4) * kPitch<D> + 2 * (lane % 4);
            #pragma unroll
            for (int c = 0; c < D / 8; c++)
                *reinterpret_cast<uint32_t*>(row + 8 * c) = ptx::pack_bf16(
                    sum[m][c][2 * r] * factor[m][r], sum[m][c][2 * r + 1] * factor[m][r]);
        }
    __syncwarp();
    constexpr int packs = D / Pack::size;
    for (int i = lane; i < 16 * M * packs; i += 32) {
        const int r = i / packs, c = i % packs * Pack::size;
        if (r < rows) Pack::load(own + r * kPitch<D> + c).store_global(to + r * stride + c);
    }
}

// to[c] = the column sums of a warp's first `rows` rows, as store_rows() has left them at own; `to` is in
// shared memory. rows may be <= 0.
template <int D, int M>
static __device__ __forceinline__ void sum_rows(float* to, const floatX* own, int rows) {
    for (int c = threadIdx.x % 32 * 2; c < D; c += 64) {
        float sum[2] = {};
        #pragma unroll 8
        for (int r = 0; r < 16 * M; r++) {
            if (r >= rows) break;
            sum[0] += float(own[r * kPitch<D> + c]), sum[1] += float(own[r * kPitch<D> + c + 1]);
        }
        to[c] = sum[0], to[c + 1] = sum[1];
    }
}

// If Bounded: for each row of a block, in shared memory, first_key() of a query or end_query() of a key. The
// values never fall from row to row; rows behind the last row repeat its value.
template <int Rows>
static __device__ __forceinline__ void first_keys(int* to, const AttentionDims& d, int start, int sequence) {
    for (int i = threadIdx.x; i < Rows; i += kThreads)
        to[i] = d.first_key(min(start + i, d.Tq - 1), sequence);
}
template <int Rows>
static __device__ __forceinline__ void end_queries(int* to, const AttentionDims& d, int start, int sequence) {
    for (int i = threadIdx.x; i < Rows; i += kThreads)
        to[i] = d.end_query(min(start + i, d.Tk - 1), sequence);
}
template <int M> inline constexpr size_t kBoundsBytes = 16 * M * kWarps * sizeof(int);
template <int M> static size_t bounds_bytes(const AttentionDims& d) {
    return d.bounded() ? kBoundsBytes<M> : 0;
}

}  // namespace cuda
}  // namespace PRECISION
