// Tiles of attention by wgmma and TMA, on Hopper: for wgmma_forward.cu, wgmma_queries.cu and wgmma_keys.cu.
//
// A block has three groups of four warps. The first produces: one of its threads copies tiles by TMA into a
// ring of stages. The other two consume: each owns 64 of the block's 128 rows, and its products read the
// tiles in shared memory; values of pairs of rows stay in registers, where they are the left operand of the
// next product. As many blocks run as the GPU has processors. A block takes 128 rows a turn, of any head, the
// longest first; the producer goes ahead, so that copies go on while the consumers end a turn.
//
// A tile of n rows and D channels lies as D / 64 slabs of (n, 64) elements, as TMA swizzles them.
#pragma once
#include "llmc/ops/cuda/attention/attention_head.h"
#include "llmc/ops/cuda/attention/attention_tiles.h"
#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/cuda/ptx_hopper.h"
#include "llmc/ops/cuda/tensor_map.h"

namespace PRECISION {
namespace cuda {

static constexpr int kGroup = 128, kWgmmaThreads = 3 * kGroup;     // threads
static constexpr int kOwn = 64, kOwned = 2 * kOwn;                  // rows of a consumer, of a block
static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

// Tiles in turn: the n-th of the block is in stage n % Stages. The producer waits until all warps that
// consume have released what was there, a consumer until the tile has come.
template <int Stages> struct Ring {
    uint64_t full[Stages], empty[Stages];

    // arrivals: of producers, for a tile
    __device__ __forceinline__ void init(int arrivals) {
        for (int i = 0; i < Stages; i++) {
            ptx::mbarrier_init(full + i, arrivals);
            ptx::mbarrier_init(empty + i, 2 * kGroup / 32);
        }
    }
    __device__ __forceinline__ uint64_t* tile(int n) { return full + n % Stages; }
    __device__ __forceinline__ void wait_full(int n) { ptx::mbarrier_wait(tile(n), n / Stages % 2); }
    __device__ __forceinline__ void wait_empty(int n) {
        ptx::mbarrier_wait(empty + n % Stages, n / Stages % 2 ^ 1);
    }
    // By every warp of a consumer.
    __device__ __forceinline__ void release(int n) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty + n % Stages);
    }
};

// The block of the order that this block computes in its n-th turn. Every other turn goes backwards: the
// sums of lengths are alike.
static __device__ __forceinline__ unsigned block_of_turn(unsigned n) {
    return n * gridDim.x + (n % 2 ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
}
static unsigned grid_of(const HeadOrder& order) {
    return std::min(order.blocks, unsigned(cuda_device().processors));
}

// The dynamic shared memory from the first multiple of 1,024 bytes, where swizzled tiles may begin.
static __device__ __forceinline__ floatX* first_tile(floatX* shared) {
    return shared + -uintptr_t(shared) % 1024 / sizeof(floatX);
}
static constexpr size_t kAlignBytes = 1024;

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

// Of sums (64, N) this thread has row_of_group() and the eighth after it, the second where i / 2 is odd, and
// column first_column() + column_of(i).
static __device__ __forceinline__ int row_of_group() {
    const int thread = threadIdx.x % kGroup;
    return thread / 32 * 16 + thread % 32 / 4;
}
static __device__ __forceinline__ int first_column() { return threadIdx.x % 4 * 2; }
static __device__ __forceinline__ constexpr int column_of(int i) { return i / 4 * 8 + i % 2; }

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

// Words a quad of lanes exchanges: lane t gets word t of each lane, in the order of lanes.
static __device__ __forceinline__ void transpose_quad(uint32_t (&w)[4]) {
    #pragma unroll
    for (int apart = 1; apart <= 2; apart *= 2) {
        const bool high = threadIdx.x & apart;
        #pragma unroll
        for (int n = 0; n < 2; n++) {
            const int low = apart == 1 ? 2 * n : n;
            const uint32_t got = __shfl_xor_sync(kFullWarp, high ? w[low] : w[low + apart], apart);
            if (high) w[low] = got;
            else w[low + apart] = got;
        }
    }
}

// Stores the first `rows` of a consumer's 64 rows, times the factors of this thread's two; rows may be <= 0.
template <int D>
static __device__ __forceinline__ void store_rows(floatX* to, size_t stride, int rows,
                                                  const float (&sum)[D / 2], float factor,
                                                  float factor_of_second) {
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        const int row = row_of_group() + 8 * r;
        const float f = r ? factor_of_second : factor;
        #pragma unroll
        for (int c = 0; c < D; c += 32) {               // four times eight channels
            uint32_t w[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) {
                const float* pair = sum + c / 2 + 4 * i + 2 * r;
                w[i] = ptx::pack_bf16(pair[0] * f, pair[1] * f);
            }
            transpose_quad(w);
            if (row < rows)
                ptx::store16_global(to + row * stride + c + threadIdx.x % 4 * 8, {w[0], w[1], w[2], w[3]});
        }
    }
}

// The variant Pass<D>: floor() and run() for heads of D channels, as in the table of a file.
template <class Tensors, template <int> class Pass, int D>
static constexpr AttentionVariant<Tensors> wgmma_variant(const char* name) {
    const auto supports = [](int size) {
        return sizeof(floatX) == 2 && size == D && cuda_device().arch == 90 &&
               Pass<D>::Tiles::bytes + kAlignBytes <= shared_limit();
    };
    return {name, supports, Pass<D>::floor, Pass<D>::run, true};
}

}  // namespace cuda
}  // namespace PRECISION
