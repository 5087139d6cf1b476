// The emulated wgmma against direct computations, in each order of threads, computed early and late.
#include <cuda_runtime.h>

#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;
using emulator::in_every_order;
using ptx::Major;

template <class... P, class... A>
static void start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    const std::string error = emulator::error_of(kernel, grid, block, shared, arguments...);
    EXPECT(error.empty(), "%s", error.c_str());
}

// Where element (row, column) of rows of 64 lies with the swizzle of 128 bytes.
static __device__ int swizzled(int row, int column) {
    return 64 * row + 8 * (column / 8 ^ row % 8) + column % 8;
}

// ---------------------------------------------------------------------------------------------------------
// wgmma: (64, N) = 1 + (64, 64) (64, N), the sum first; a and b row by row

template <bool registers, Major A, Major B, int N>
static __global__ void multiply(float* out, const bfloat16* a, const bfloat16* b) {
    DYN_SHARED(bfloat16, tile_a);
    bfloat16* tile_b = tile_a + 64 * 64;
    const int i = int(threadIdx.x), warp = i / 32, g = i % 32 / 4, t = i % 4;
    for (int e = i; e < 64 * 64; e += 128)
        tile_a[A == Major::K ? swizzled(e / 64, e % 64) : swizzled(e % 64, e / 64)] = a[e];
    for (int e = i; e < 64 * N; e += 128) {
        const int k = e / N, n = e % N;
        tile_b[B == Major::K ? swizzled(n, k) : swizzled(n / 64 * 64 + k, n % 64)] = b[e];
    }
    uint32_t fragments[4][4];
    for (int step = 0; step < 4; step++)
        for (int r = 0; r < 4; r++) {
            const bfloat16* from = a + 64 * (16 * warp + g + 8 * (r % 2)) + 16 * step + 2 * t + 8 * (r / 2);
            fragments[step][r] = from[0].bits | uint32_t(from[1].bits) << 16;
        }
    float d[N / 2];
    for (float& x : d) x = 1;
    ptx::fence_proxy_async();
    __syncthreads();
    ptx::wgmma_fence(d);
    for (int step = 0; step < 4; step++) {
        const auto at = [&](bfloat16* tile, Major major) {
            return ptx::wgmma_descriptor(tile + (major == Major::K ? 16 : 16 * 64) * step, 64 * 128, 1024);
        };
        if constexpr (registers) ptx::wgmma<B>(d, fragments[step], at(tile_b, B), true);
        else ptx::wgmma<A, B>(d, at(tile_a, A), at(tile_b, B), true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    for (int r = 0; r < N / 2; r++)
        out[N * (16 * warp + g + 8 * (r / 2 % 2)) + 8 * (r / 4) + 2 * t + r % 2] = d[r];
}

template <bool registers, Major A, Major B, int N> static void check_product() {
    const auto a = emulator::whole_numbers(64 * 64, 1), b = emulator::whole_numbers(64 * N, 2);
    const Device<bfloat16> on_a(a), on_b(b);
    const Device<float> out(std::vector<float>(64 * N));
    start(multiply<registers, A, B, N>, 1, 128, (64 + N) * 128, out.p, on_a.p, on_b.p);
    const auto got = out.host();
    for (size_t m = 0; m < 64; m++)
        for (size_t n = 0; n < N; n++) {
            float wanted = 1;
            for (size_t k = 0; k < 64; k++) wanted += float(a[64 * m + k]) * float(b[N * k + n]);
            EXPECT(got[N * m + n] == wanted, "N = %d, A %d %d, B %d: (%zu, %zu) is %g, not %g", N, registers,
                   int(A), int(B), m, n, got[N * m + n], wanted);
        }
}
template <int N> static void check_products() {
    check_product<false, Major::K, Major::K, N>();
    check_product<false, Major::K, Major::MN, N>();
    check_product<false, Major::MN, Major::K, N>();
    check_product<false, Major::MN, Major::MN, N>();
    check_product<true, Major::K, Major::K, N>();
    check_product<true, Major::K, Major::MN, N>();
}
TEST(wgmma_multiplies_as_documented) {
    check_products<128>();
    check_products<192>();
    check_products<256>();
    in_every_order(check_products<64>);
}

// Two groups of products on the way: each wait completes what it names, and no more.
static __global__ void two_groups(float* out) {
    DYN_SHARED(bfloat16, tile);
    for (int e = int(threadIdx.x); e < 64 * 64; e += 128) tile[e] = bfloat16(1);
    ptx::fence_proxy_async();
    __syncthreads();
    float first[32], second[32];
    const uint64_t operand = ptx::wgmma_descriptor(tile, 0, 1024);
    ptx::wgmma_fence(first, second);
    ptx::wgmma<Major::K, Major::K>(first, operand, operand, false);
    ptx::wgmma_commit();
    ptx::wgmma<Major::K, Major::K>(second, operand, operand, false);
    ptx::wgmma<Major::K, Major::K>(second, operand, operand, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>(first);
    float sum = 0;
    for (const float x : first) sum += x;
    ptx::wgmma_wait<0>(second);
    for (const float x : second) sum += 100 * x;
    out[threadIdx.x] = sum;
}
TEST(wgmma_waits_complete_groups) {
    in_every_order([] {
        const Device<float> out(std::vector<float>(128));
        start(two_groups, 1, 128, 8192, out.p);
        for (const float x : out.host()) EXPECT(x == 32 * 16 + 100 * 32 * 32, "%g", x);
    });
}
