// REQUIRES: compiled with -fsanitize=thread,alignment, which checks accesses
#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/planted.h"
#include "test/emulator/testing.h"

namespace planted {

using ptx::Major;
using Map = CUtensorMap;

// Two tiles of 64 rows of 128 bytes, then the mbarriers.
static constexpr size_t kTile = 8192, kBarriers = 2 * kTile, kShared = kBarriers + 64;
static constexpr int kRow = 64;                        // bfloat16

// 1024 floats as 32 rows of 64 bfloat16, the box being a tile: its further rows become zeros.
static Map rows_of(float* data) {
    void* function = nullptr;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault);
    const uint64_t sizes[2] = {kRow, 32}, stride = 128;
    const uint32_t box[2] = {kRow, 64}, steps[2] = {1, 1};
    Map map;
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, &stride, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
template <class... P, class... A> static void start(void (*kernel)(P...), dim3 block, A... arguments) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared));
    emulator::start(kernel, 1, block, kShared, nullptr, arguments...);
}

static __device__ uint64_t* barriers(float* tile) {
    return reinterpret_cast<uint64_t*>(tile + kBarriers / 4);
}
static __device__ void make(uint64_t* b, int arrivals, int more_arrivals) {
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(b, arrivals);
        ptx::mbarrier_init(b + 1, more_arrivals);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
}

// ---------------------------------------------------------------------------------------------------------
// mbarriers and loads

static constexpr int kEarlyLine = __LINE__ + 10;
template <bool bug> __global__ void read_early(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t* full = barriers(tile);
    make(full, 1, 1);
    if (threadIdx.x == 127) {
        ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile, &map, full, 0, 0);
    }
    if (!bug || threadIdx.x < 64) ptx::mbarrier_wait(full, 0);
    const float v = tile[threadIdx.x];
    ptx::mbarrier_wait(full, 0);
    data[threadIdx.x] = v;
}

// A thread lets the producer refill the tile, and reads on; or has read it, and TMA does not know.
static constexpr int kRefilledLine = __LINE__ + 8;
template <bool early, bool unfenced> __global__ void refilled(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t *full = barriers(tile), *empty = full + 1;
    make(full, 1, 127);
    for (int step = 0; step < 2 && threadIdx.x == 0; step++) {
        ptx::mbarrier_wait(empty, step % 2 ^ 1);
        ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile, &map, full, 0, 0);
    }
    float sum = 0;
    for (int step = 0; step < 2 && threadIdx.x > 0; step++) {
        ptx::mbarrier_wait(full, step % 2);
        if (early) ptx::mbarrier_arrive(empty);
        sum += tile[threadIdx.x];
        if (!unfenced) ptx::fence_proxy_async();
        if (!early) ptx::mbarrier_arrive(empty);
    }
    __syncthreads();
    if (threadIdx.x > 0) data[threadIdx.x] = sum;
}

static constexpr int kArrivalLine = __LINE__ + 5;
template <bool bug> __global__ void missing_arrival(float* data) {
    DYN_SHARED(float, tile);
    make(barriers(tile), 128, 1);
    if (!bug || threadIdx.x > 0) ptx::mbarrier_arrive(barriers(tile));
    ptx::mbarrier_wait(barriers(tile), 0);
    data[threadIdx.x] = 1;
}

static constexpr int kAheadLine = __LINE__ + 7;
template <bool bug> __global__ void phase_ahead(float* data) {
    DYN_SHARED(float, tile);
    uint64_t* b = barriers(tile);
    make(b, 1, 1);
    if (threadIdx.x == 126) ptx::mbarrier_arrive(b);
    if (threadIdx.x == 126 && bug) ptx::mbarrier_arrive(b);
    else ptx::mbarrier_wait(b, 0);
    data[threadIdx.x] = 1;
}

static constexpr int kUnannouncedLine = __LINE__ + 7;
template <bool bug> __global__ void unannounced(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t* full = barriers(tile);
    make(full, 1, 1);
    if (threadIdx.x == 0) {
        if (!bug) ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile, &map, full, 0, 0);
        if (bug) ptx::mbarrier_arrive(full);
    }
    ptx::mbarrier_wait(full, 0);
    data[threadIdx.x] = tile[threadIdx.x];
}

static constexpr int kAbandonedLine = __LINE__ + 7;
template <bool bug> __global__ void abandoned(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t* full = barriers(tile);
    make(full, 1, 1);
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile, &map, full, 0, 0);
    }
    if (!bug) ptx::mbarrier_wait(full, 0);
    if (!bug) data[threadIdx.x] = 1;
}

// off: bytes of the destination. unfenced: TMA does not know the mbarrier. unseen: other threads do not.
static constexpr int kMisplacedLine = __LINE__ + 12;
template <bool bug, int off, bool unfenced, bool unseen>
__global__ void misplaced(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t* full = barriers(tile);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        if (!bug || !unfenced) ptx::mbarrier_fence_init();
    }
    if (!bug || !unseen) __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile + (bug ? off / 4 : 0), &map, full, 0, 0);
    }
    ptx::mbarrier_wait(full, 0);
    data[threadIdx.x] = 1;
}

static constexpr int kAsDataLine = __LINE__ + 4;
template <bool bug> __global__ void barrier_as_data(float* data) {
    DYN_SHARED(float, tile);
    make(barriers(tile), 1, 1);
    if (bug) *barriers(tile) = 0;
    data[threadIdx.x] = 1;
}

// A second warp group's thread refills the tile that the products of the first read.
static constexpr int kReadLine = __LINE__ + 9;
template <bool bug> __global__ void tile_still_read(float* data, const __grid_constant__ Map map) {
    DYN_SHARED(float, tile);
    uint64_t *full = barriers(tile), *empty = full + 1;
    make(full, 1, 1);
    const unsigned i = threadIdx.x;
    for (int step = 0; step < 2 && i == 128; step++) {
        ptx::mbarrier_wait(empty, step % 2 ^ 1);
        ptx::mbarrier_arrive_expect(full, kTile);
        ptx::tma_load_2d(tile, &map, full, 0, 0);
    }
    if (i >= 128) return;
    float d[32] = {};
    const uint64_t a = ptx::wgmma_descriptor(tile, 0, 1024);
    for (int step = 0; step < 2; step++) {
        ptx::mbarrier_wait(full, step % 2);
        ptx::wgmma_fence(d);
        ptx::wgmma<Major::K, Major::K>(d, a, a, true);
        ptx::wgmma_commit();
        if (bug && i == 127) ptx::mbarrier_arrive(empty);
        ptx::wgmma_wait<0>(d);
        if (!bug && i == 127) ptx::mbarrier_arrive(empty);
    }
    data[i] = d[0];
}

// ---------------------------------------------------------------------------------------------------------
// warp groups

// The first writes, the second reads behind a named barrier.
static constexpr int kHandedLine = __LINE__ + 8;
template <bool bug> __global__ void handed_over(float* data) {
    DYN_SHARED(float, tile);
    const unsigned i = threadIdx.x % 128;
    if (threadIdx.x < 128) {
        if (bug) ptx::barrier_arrive<1, 256>();
        tile[i] = 1;
        if (!bug) ptx::barrier_arrive<1, 256>();
    } else {
        ptx::barrier_sync<1, 256>();
        data[i] = tile[127 - i];
    }
}
static constexpr int kNamedLine = __LINE__ + 2;
template <bool bug> __global__ void too_few(float* data) {
    if (!bug || threadIdx.x < 128) ptx::barrier_sync<3, 256>();
    data[threadIdx.x] = 1;
}
static constexpr int kRegistersLine = __LINE__ + 3;
template <bool bug> __global__ void __launch_bounds__(384, 1) registers(float* data) {
    if (threadIdx.x < 128) ptx::registers_less<bug ? 40 : 24>();
    else ptx::registers_more<240>();
    data[threadIdx.x] = 1;
}
static constexpr int kPartLine = __LINE__ + 2;
template <bool bug> __global__ void part_of_a_group(float* data) {
    if (!bug || threadIdx.x < 96) ptx::registers_less<24>();
    data[threadIdx.x] = 1;
}

#define PAIRS(X)                                                                                           \
    X(read_before_the_phase, kEarlyLine, "reads what TMA has written", start(read_early<bug>, 128, d, m))  \
    X(refilled_too_early, kRefilledLine, "TMA writes what thread", start(refilled<bug, false>, 128, d, m)) \
    X(reads_not_fenced, kRefilledLine, "with no fence_proxy_async of that thread between",                 \
      start(refilled<false, bug>, 128, d, m))                                                              \
    X(missing_arrival, kArrivalLine, "deadlock: waits in mbarrier_wait at byte 16384 of shared memory, "   \
      "phase 0 (parity 0): 1 of 128 arrivals", start(missing_arrival<bug>, 128, d))                        \
    X(phase_runs_ahead, kAheadLine, "their parities are the same", start(phase_ahead<bug>, 128, d))        \
    X(unannounced_bytes, kUnannouncedLine, "which nobody has announced",                                   \
      start(unannounced<bug>, 128, d, m))                                                                  \
    X(load_not_waited_for, kAbandonedLine, "without having waited for this load",                          \
      start(abandoned<bug>, 128, d, m))                                                                    \
    X(misaligned_load, kMisplacedLine, "misaligned: TMA to byte 64",                                       \
      start(misplaced<bug, 64, false, false>, 128, d, m))                                                  \
    X(mbarrier_unknown_to_tma, kMisplacedLine, "no mbarrier_fence_init",                                   \
      start(misplaced<bug, 0, true, false>, 128, d, m))                                                    \
    X(mbarrier_not_seen, kMisplacedLine + 2, "has made with no barrier between",                           \
      start(misplaced<bug, 0, false, true>, 128, d, m))                                                    \
    X(mbarrier_as_data, kAsDataLine, "as if it were data", start(barrier_as_data<bug>, 128, d))            \
    X(tile_still_read, kReadLine, "TMA writes what wgmma has read",                                        \
      start(tile_still_read<bug>, 256, d, m))                                                              \
    X(handed_over_early, kHandedLine + 2, "race on shared memory: reads", start(handed_over<bug>, 256, d)) \
    X(named_barrier, kNamedLine, "deadlock: waits in barrier_sync 3: 128 of 256 threads",                  \
      start(too_few<bug>, 256, d))                                                                         \
    X(no_registers, kRegistersLine, "waits in registers_more for 9216 registers, of which",                \
      start(registers<bug>, 384, d))                                                                       \
    X(part_of_a_warp_group, kPartLine, "96 threads of a warp group", start(part_of_a_group<bug>, 128, d))

#define BUG(name, line, says, call) BOTH(name, line, says, call, true)
#define SOUND(name, line, says, call) BOTH(name, line, says, call, false)
#define BOTH(name, line, says, call, has_bug)                                                              \
    {#name, line, says, [](float* d) {                                                                     \
        constexpr bool bug = has_bug;                                                                      \
        [[maybe_unused]] const Map m = rows_of(d);                                                         \
        call;                                                                                              \
    }},
const Bug hopper_bugs[] = {PAIRS(BUG)};
const int hopper_count = int(std::size(hopper_bugs));
const Bug hopper_sound[] = {PAIRS(SOUND)};

}  // namespace planted
