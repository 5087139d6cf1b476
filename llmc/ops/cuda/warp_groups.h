// Blocks that compute by wgmma and TMA, on Hopper: for attention and for products.
//
// A block has three groups of four warps. The first produces: one of its threads copies tiles by TMA into a
// ring of stages. The other two consume: each owns 64 of the block's 128 rows, and its products read the
// tiles in shared memory. As many blocks run as the GPU has processors. A block takes 128 rows a turn; the
// producer goes ahead, so that copies go on while the consumers end a turn.
#pragma once
#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/cuda/ptx_hopper.h"

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

// The dynamic shared memory from the first multiple of 1,024 bytes, where swizzled tiles may begin.
static __device__ __forceinline__ floatX* first_tile(floatX* shared) {
    return shared + -uintptr_t(shared) % 1024 / sizeof(floatX);
}
static constexpr size_t kAlignBytes = 1024;

// Whether this rank's GPU runs such blocks, with so many bytes of tiles and barriers.
static inline bool runs_wgmma(size_t tile_bytes) {
    return sizeof(floatX) == 2 && cuda_device().arch == 90 && tile_bytes + kAlignBytes <= shared_limit();
}

// Meetings of a consumer, 0 or 1: of its four warps, and of both consumers at a barrier of each.
static __device__ __forceinline__ void group_sync(int consumer) {
    if (consumer == 0) ptx::barrier_sync<1, kGroup>();
    else ptx::barrier_sync<2, kGroup>();
}
static __device__ __forceinline__ void wait_for_turn(int consumer) {
    if (consumer == 0) ptx::barrier_sync<1, 2 * kGroup>();
    else ptx::barrier_sync<2, 2 * kGroup>();
}
static __device__ __forceinline__ void pass_turn_to(int consumer) {
    if (consumer == 0) ptx::barrier_arrive<1, 2 * kGroup>();
    else ptx::barrier_arrive<2, 2 * kGroup>();
}

// Of sums (64, N) this thread has row_of_group() and the eighth after it, the second where i / 2 is odd, and
// column first_column() + column_of(i).
static __device__ __forceinline__ int row_of_group() {
    const int thread = threadIdx.x % kGroup;
    return thread / 32 * 16 + thread % 32 / 4;
}
static __device__ __forceinline__ int first_column() { return threadIdx.x % 4 * 2; }
static __device__ __forceinline__ constexpr int column_of(int i) { return i / 4 * 8 + i % 2; }

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

}  // namespace cuda
}  // namespace PRECISION
