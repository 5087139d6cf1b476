// REQUIRES: compiled with -fsanitize=thread,alignment, which checks accesses
#include "test/emulator/planted.h"

#include "llmc/ops/cuda/ptx.h"
#include "test/emulator/testing.h"

namespace planted {

template <class... P, class... A>
static void start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    emulator::start(kernel, grid, block, shared, nullptr, arguments...);
}

// Reverses 256 values through shared memory.
static constexpr int kReverseLine = __LINE__ + 8;
template <bool bug> __global__ void reverse(float* data) {
    SMEM(float[256], tile);
    const unsigned i = threadIdx.x;
    tile[i] = 0;
    __syncthreads();
    tile[i] = data[i];
    if (!bug) __syncthreads();
    data[i] = tile[255 - i];
}

static constexpr int kStoreLine = __LINE__ + 3;
template <bool bug> __global__ void store(float* data, int count) {
    const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
    if (bug ? i <= count : i < count) data[i] = 1;
}

// The tail, of elements beyond the last whole pack.
static constexpr int kTailLine = __LINE__ + 3;
template <bool bug> __global__ void tail(float* data, int from, int count) {
    for (int i = from + int(threadIdx.x); i < count; i += bug ? 1 : int(blockDim.x))
        data[i] = 2;
}

static constexpr int kUnwrittenLine = __LINE__ + 5;
template <bool bug> __global__ void unwritten(float* data) {
    SMEM(float[64], sums);
    if (threadIdx.x < (bug ? 63 : 64)) sums[threadIdx.x] = 1;
    __syncthreads();
    data[threadIdx.x] = sums[63 - threadIdx.x];
}

static constexpr int kShuffleLine = __LINE__ + 4;
template <bool bug> __global__ void shuffle(float* data, int count) {
    float v = data[threadIdx.x];
    if (!bug || int(threadIdx.x) < count)
        v += __shfl_xor_sync(0xffffffffu, v, 1);
    __syncthreads();
    data[threadIdx.x] = v;
}

static constexpr int kExitLine = __LINE__ + 4;
template <bool bug> __global__ void shuffle_exited(float* data, int count) {
    if (bug && int(threadIdx.x) >= count) return;
    float v = data[threadIdx.x];
    v += __shfl_down_sync(0xffffffffu, v, 1);
    data[threadIdx.x] = v;
}

static constexpr int kCopyLine = __LINE__ + 7;
template <bool bug> __global__ void copy(float* data) {
    DYN_SHARED(float, tile);
    ptx::cp_async16(tile + 4 * threadIdx.x, data + 4 * threadIdx.x, true);
    ptx::cp_async_commit();
    ptx::cp_async_wait<bug ? 1 : 0>();
    __syncthreads();
    data[128 + threadIdx.x] = tile[4 * threadIdx.x];
    ptx::cp_async_wait<0>();
}

// A second copy to a stage that other threads still read.
static constexpr int kRefillLine = __LINE__ + 11;
template <bool bug> __global__ void refill(float* data) {
    DYN_SHARED(float, tile);
    float sum = 0;
    for (int step = 0; step < 2; step++) {
        const float* from = data + 128 * step + 4 * threadIdx.x;
        if (!bug) __syncthreads();
        ptx::cp_async16(tile + 4 * threadIdx.x, from, true);
        ptx::cp_async_commit();
        ptx::cp_async_wait<0>();
        __syncthreads();
        sum += tile[127 - threadIdx.x];
    }
    data[512 + threadIdx.x] = sum;
}

// Another thread writes the source of a copy before the copy is awaited.
static constexpr int kSourceLine = __LINE__ + 7;
template <bool bug> __global__ void copied_source(float* data) {
    DYN_SHARED(float, tile);
    ptx::cp_async16(tile + 4 * threadIdx.x, data + 4 * threadIdx.x, true);
    ptx::cp_async_commit();
    if (!bug) ptx::cp_async_wait<0>();
    __syncthreads();
    data[4 * (31 - threadIdx.x)] = 7;
    ptx::cp_async_wait<0>();
    data[512 + threadIdx.x] = tile[4 * threadIdx.x];
}

template <bool bug> __global__ void large(float* data) {
    DYN_SHARED(float, tile);
    tile[threadIdx.x] = 1;
    data[threadIdx.x] = tile[threadIdx.x];
}

static constexpr int kStaticLine = __LINE__ + 3;
template <bool bug> __global__ void static_beside_dynamic(float* data) {
    DYN_SHARED(float, tile);
    SMEM(float[32], sums);
    tile[threadIdx.x] = sums[threadIdx.x] = 1;
    data[threadIdx.x] = tile[threadIdx.x];
}

static constexpr int kDivergentLine = __LINE__ + 5;
template <bool bug> __global__ void divergent(float* data) {
    if (bug && threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    data[threadIdx.x] = 3;
}

static constexpr int kMisalignedLine = __LINE__ + 2;
template <bool bug> __global__ void misaligned(float* data) {
    const float4 v = *reinterpret_cast<const float4*>(data + 4 * threadIdx.x + (bug ? 1 : 0));
    *reinterpret_cast<float4*>(data + 512 + 4 * threadIdx.x) = v;
}

static constexpr int kBlocksLine = __LINE__ + 3;
template <bool bug> __global__ void between_blocks(float* data) {
    if (threadIdx.x == 0)
        data[bug ? 0 : blockIdx.x] = float(blockIdx.x);
}

// The last block to arrive adds up every block's sum.
static constexpr int kFenceLine = __LINE__ + 9;
template <bool bug> __global__ void last_block(float* data, unsigned* arrived) {
    if (threadIdx.x != 0) return;
    data[blockIdx.x] = 1;
    if (!bug) __threadfence();
    if (atomicAdd(arrived, 1u) != gridDim.x - 1) return;
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum +=
            data[i];
    data[512] = sum;
    *arrived = 0;
}

static constexpr int kEndlessLine = __LINE__ + 3;
template <bool bug> __global__ void endless(float* data) {
    for (int step = bug ? 0 : 1, i = int(threadIdx.x); i < 64; i += 32 * step)
        reinterpret_cast<volatile float*>(data)[i] = 4;
}

static constexpr int kSharedBoundLine = __LINE__ + 3;
template <bool bug> __global__ void shared_bound(float* data) {
    SMEM(float[32], tile);
    tile[threadIdx.x + (bug ? 1 : 0)] = 5;
    data[threadIdx.x] = 1;
}

static constexpr int kHostLine = __LINE__ + 2;
template <bool bug> __global__ void host_memory(float* data, const float* host) {
    data[threadIdx.x] = bug ? *host : 1.f;
}

template <bool bug> __global__ void __launch_bounds__(64) bounded(float* data) { data[threadIdx.x] = 6; }

#define PAIRS(X)                                                                                           \
    X(missing_barrier, kReverseLine, "race on shared memory", start(reverse<bug>, 1, 256, 0, d))           \
    X(off_by_one_store, kStoreLine, "out of bounds", start(store<bug>, 9, 128, 0, d, 1024))                \
    X(tail_stride, kTailLine, "race on global memory", start(tail<bug>, 1, 64, 0, d, 900, 1000))           \
    X(unwritten_shared, kUnwrittenLine, "nobody has written", start(unwritten<bug>, 1, 64, 0, d))          \
    X(missing_lane, kShuffleLine, "lanes ffffff00 are missing", start(shuffle<bug>, 1, 64, 0, d, 40))      \
    X(exited_lane, kExitLine, "lanes ffffff00 are missing",                                                \
      start(shuffle_exited<bug>, 1, 64, 0, d, 40))                                                         \
    X(async_copy_not_waited_for, kCopyLine, "before the wait", start(copy<bug>, 1, 32, 512, d))            \
    X(source_of_a_copy, kSourceLine, "race on global memory", start(copied_source<bug>, 1, 32, 512, d))    \
    X(stage_refilled, kRefillLine, "race on shared memory", start(refill<bug>, 1, 32, 512, d))             \
    X(no_opt_in, 0, "without opt-in", start(large<bug>, 1, 32, bug ? 60 << 10 : 48 << 10, d))              \
    X(no_opt_in_with_static, kStaticLine, "static and dynamic shared memory without opt-in",               \
      start(static_beside_dynamic<bug>, 1, 32, (48 << 10) - (bug ? 127 : 128), d))                         \
    X(divergent_barrier, kDivergentLine, "divergent barrier", start(divergent<bug>, 1, 64, 0, d))          \
    X(misaligned_vector, kMisalignedLine, "misaligned", start(misaligned<bug>, 1, 32, 0, d))               \
    X(race_between_blocks, kBlocksLine, "race on global memory",                                           \
      start(between_blocks<bug>, 2, 32, 0, d))                                                             \
    X(missing_fence, kFenceLine, "race on global memory",                                                  \
      start(last_block<bug>, 4, 32, 0, d, reinterpret_cast<unsigned*>(d + 1000)))                          \
    X(endless_loop, kEndlessLine, "endless loop", start(endless<bug>, 1, 32, 0, d))                        \
    X(shared_off_by_one, kSharedBoundLine, "out of bounds", start(shared_bound<bug>, 1, 32, 0, d))         \
    X(host_pointer, kHostLine, "no device memory", start(host_memory<bug>, 1, 32, 0, d, new float))        \
    X(launch_bounds, 0, "launch bounds", start(bounded<bug>, 1, bug ? 96 : 64, 0, d))

#define BUG(name, line, says, call)                                                                        \
    {#name, line, says, [](float* d) { constexpr bool bug = true; call; }},
#define SOUND(name, line, says, call)                                                                      \
    {#name, line, says, [](float* d) { constexpr bool bug = false; call; }},
const Bug bugs[] = {PAIRS(BUG)};
const int count = int(std::size(bugs));
const Bug sound[] = {PAIRS(SOUND)};

}  // namespace planted
