// REQUIRES: compiled with -fsanitize=thread,alignment, which checks accesses
#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/planted.h"
#include "test/emulator/testing.h"

namespace planted {

using ptx::Major;

static constexpr size_t kTile = 8192;                  // 64 rows of 128 bytes

template <class... P, class... A> static void start(void (*kernel)(P...), dim3 block, A... arguments) {
    emulator::start(kernel, 1, block, 2 * kTile, nullptr, arguments...);
}

static __device__ void fill(float* tile) {
    for (unsigned i = threadIdx.x; i < 2 * kTile / 4; i += blockDim.x) tile[i] = 0;
}

static constexpr int kStoresLine = __LINE__ + 9;
template <bool bug> __global__ void stores_not_fenced(float* data) {
    DYN_SHARED(float, tile);
    fill(tile);
    if (!bug) ptx::fence_proxy_async();
    __syncthreads();
    float d[32];
    const uint64_t a = ptx::wgmma_descriptor(tile, 0, 1024);
    ptx::wgmma_fence(d);
    ptx::wgmma<Major::K, Major::K>(d, a, a, false);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    data[threadIdx.x] = d[0];
}

// A thread writes the tile that a product still reads: a barrier is no wait.
static constexpr int kWrittenLine = __LINE__ + 12;
template <bool bug> __global__ void tile_written(float* data) {
    DYN_SHARED(float, tile);
    fill(tile);
    ptx::fence_proxy_async();
    __syncthreads();
    float d[32];
    const uint64_t a = ptx::wgmma_descriptor(tile, 0, 1024);
    ptx::wgmma_fence(d);
    ptx::wgmma<Major::K, Major::K>(d, a, a, false);
    ptx::wgmma_commit();
    if (bug) __syncthreads();
    if (bug && threadIdx.x == 9) tile[504] = 1;
    ptx::wgmma_wait<0>(d);
    __syncthreads();
    if (threadIdx.x == 9) tile[504] = d[0];
    data[threadIdx.x] = d[0];
}

// Sums, and fragments of a, between fence and wait. what: the bug's number.
static constexpr int kProductsLine = __LINE__ + 1;
template <int what> __global__ void products(float* data) {
    DYN_SHARED(float, tile);
    fill(tile);
    ptx::fence_proxy_async();
    if (what != 1) __syncthreads();
    float d[32], e[32];
    uint32_t a[4] = {0x3f803f80, 0x3f803f80, 0, 0};
    for (float& x : d) x = data[threadIdx.x];
    const uint64_t b = ptx::wgmma_descriptor(tile + (what == 2 ? 128 : 0), 0, 1024);
    ptx::wgmma_fence(d, e);
    if (what == 3) d[5] = 1;
    if (what == 4) a[0] = 0;
    ptx::wgmma<Major::K>(d, a, b, true);
    if (what == 5) a[1] = 0;
    if (what == 6) d[7] = 1;
    ptx::wgmma_commit();
    ptx::wgmma<Major::MN, Major::MN>(e, b, b, false);
    ptx::wgmma_commit();
    if (what == 7) ptx::wgmma_wait<1>(e);
    if (what == 8) ptx::wgmma_wait<1>();
    else ptx::wgmma_wait<1>(d);
    const float sum = d[3];
    if (what != 9) ptx::wgmma_wait<0>(e);
    data[threadIdx.x] = sum + (what != 9 ? e[0] : 0);
}

#define PRODUCTS(X, name, line, says, what) X(name, line, says, start(products<bug ? what : 0>, 128, d))
#define PAIRS(X)                                                                                           \
    X(stores_not_fenced, kStoresLine, "no fence_proxy_async", start(stores_not_fenced<bug>, 128, d))       \
    X(tile_written, kWrittenLine, "writes what wgmma has read", start(tile_written<bug>, 128, d))       \
    PRODUCTS(X, stores_without_a_barrier, kProductsLine + 12, "race on shared memory: wgmma reads", 1)     \
    PRODUCTS(X, misaligned_tile, kProductsLine + 12, "byte 512 of shared memory, no multiple", 2)          \
    PRODUCTS(X, sums_after_the_fence, kProductsLine + 12, "no wgmma_fence since its sums", 3)              \
    PRODUCTS(X, fragment_after_the_fence, kProductsLine + 12, "no wgmma_fence since the registers", 4)     \
    PRODUCTS(X, fragment_written, kProductsLine + 13, "writes registers of a of the wgmma", 5)             \
    PRODUCTS(X, sums_written, kProductsLine + 14, "writes sums of the wgmma", 6)                           \
    PRODUCTS(X, later_sums_named, kProductsLine + 18, "names sums that a later wgmma still writes", 7)     \
    PRODUCTS(X, sums_read, kProductsLine + 21, "reads sums of the wgmma", 8)                               \
    PRODUCTS(X, product_not_waited_for, kProductsLine + 16, "without having waited for this wgmma", 9)

#define BUG(name, line, says, call)                                                                        \
    {#name, line, says, [](float* d) { constexpr bool bug = true; call; }},
#define SOUND(name, line, says, call)                                                                      \
    {#name, line, says, [](float* d) { constexpr bool bug = false; call; }},
const Bug wgmma_bugs[] = {PAIRS(BUG)};
const int wgmma_count = int(std::size(wgmma_bugs));
const Bug wgmma_sound[] = {PAIRS(SOUND)};

}  // namespace planted
