// The execution model: indices, barriers, warp operations, atomics, limits of architectures, streams.
#include <cuda_runtime.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "llmc/ops/arena.h"
#include "llmc/ops/cuda/gemm.h"
#include "llmc/ops/cuda/ptx.h"
#include "test/emulator/memory.h"
#include "test/emulator/settings.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;
using emulator::Order;
using emulator::settings;
using emulator::start;

static __global__ void indices(int* out) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += int(block * 1000 + thread);
}
TEST(every_thread_of_every_block_runs_once) {
    for (const Order order : {Order::Forward, Order::Reverse, Order::Random}) {
        settings.order = order;
        Device<int> out(2 * 3 * 2 * 60);
        EXPECT(start(indices, dim3(2, 3, 2), dim3(5, 4, 3), 0, nullptr, out.p) == cudaSuccess);
        const auto got = out.host();
        for (int i = 0; i < int(got.size()); i++) {
            const int block = i / 60, thread = i - 60 * block;
            EXPECT(got[size_t(i)] == 1000 * block + thread, "thread %d wrote %d", i, got[size_t(i)]);
        }
    }
    settings.order = Order::Forward;
}

static __global__ void arrivals(unsigned* out, unsigned* counter) {
    out[threadIdx.x] = atomicAdd(counter, 1u);
}
TEST(orders_differ_and_random_ones_by_their_seed) {
    const auto order_of = [](Order order, uint64_t seed) {
        settings.order = order;
        settings.seed = seed;
        Device<unsigned> out(96), counter(1);
        EXPECT(start(arrivals, 1, 96, 0, nullptr, out.p, counter.p) == cudaSuccess);
        settings.order = Order::Forward;
        auto got = out.host();
        auto sorted = got;
        std::sort(sorted.begin(), sorted.end());
        for (unsigned i = 0; i < 96; i++) EXPECT(sorted[i] == i);
        return got;
    };
    EXPECT(order_of(Order::Forward, 1)[95] == 95 && order_of(Order::Reverse, 1)[95] == 0);
    EXPECT(order_of(Order::Random, 1) != order_of(Order::Random, 2));
    EXPECT(order_of(Order::Random, 1) != order_of(Order::Forward, 1));
}

static __global__ void sums(float* out, const float* in) {
    SMEM(float[8], of_warps);
    float v = in[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(~0u, v, lanes);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x >= 64) return;                       // the others still meet
    __syncthreads();
    float total = 0;
    for (int i = 0; i < 8; i++) total += of_warps[i];
    out[threadIdx.x] = total;
}
TEST(sums_have_the_same_bits_in_every_order) {
    std::vector<float> in(256);
    for (size_t i = 0; i < in.size(); i++) in[i] = 1 / float(i + 1);
    Device<float> device(256);
    cudaMemcpy(device.p, in.data(), 1024, cudaMemcpyHostToDevice);
    std::vector<float> first;
    for (int i = 0; i < 6; i++) {
        settings.order = i == 0 ? Order::Forward : i == 1 ? Order::Reverse : Order::Random;
        settings.seed = uint64_t(i);
        Device<float> out(64);
        EXPECT(start(sums, 1, 256, 0, nullptr, out.p, device.p) == cudaSuccess, "%s",
               cudaGetErrorString(cudaErrorLaunchFailure));
        if (i == 0) first = out.host();
        EXPECT(out.host() == first);
    }
    settings.order = Order::Forward;
    EXPECT_NEAR(first[0], std::accumulate(in.begin(), in.end(), 0.0), 1e-5);
}

static __global__ void warp_operations(int* out) {
    const int lane = int(threadIdx.x);
    int* mine = out + 8 * lane;
    mine[0] = __shfl_sync(~0u, lane, 5);
    mine[1] = __shfl_up_sync(~0u, lane, 3);
    mine[2] = __shfl_down_sync(~0u, lane, 3, 16);
    mine[3] = __shfl_xor_sync(~0u, lane, 9);
    mine[4] = int(__ballot_sync(~0u, lane % 3 == 0));
    mine[5] = __any_sync(~0u, lane == 31) + 2 * __all_sync(~0u, lane < 31);
    mine[6] = int(__reduce_add_sync(~0u, unsigned(lane)));
    mine[7] = lane < 16 ? __shfl_xor_sync(0xffffu, lane, 1) : __shfl_xor_sync(0xffff0000u, lane, 2);
}
TEST(warp_operations_are_as_documented) {
    for (const Order order : {Order::Forward, Order::Reverse, Order::Random}) {
        settings.order = order;
        Device<int> out(8 * 32);
        EXPECT(start(warp_operations, 1, 32, 0, nullptr, out.p) == cudaSuccess);
        const auto got = out.host();
        for (int l = 0; l < 32; l++) {
            const int wanted[8] = {5, l < 3 ? l : l - 3, l % 16 + 3 > 15 ? l : l + 3, l ^ 9, int(0x49249249),
                                   1, 496, l < 16 ? l ^ 1 : l ^ 2};
            for (int i = 0; i < 8; i++)
                EXPECT(got[size_t(8 * l + i)] == wanted[i], "operation %d of lane %d gives %d, not %d", i, l,
                       got[size_t(8 * l + i)], wanted[i]);
        }
    }
    settings.order = Order::Forward;
}

static __global__ void stages(float* out, const float* in, int steps) {
    DYN_SHARED(float, tile);                             // two stages of 128
    const int i = int(threadIdx.x);
    float sum = 0;
    for (int s = 0; s <= steps; s++) {
        if (s < steps) ptx::cp_async16(tile + s % 2 * 128 + 4 * i, in + 128 * s + 4 * i, s != 2);
        ptx::cp_async_commit();
        if (s == 0) continue;
        ptx::cp_async_wait<1>();
        __syncthreads();
        sum += tile[(s - 1) % 2 * 128 + 127 - i];
        __syncthreads();
    }
    out[i] = sum;
    ptx::cp_async_wait<0>();
}
TEST(asynchronous_copies_give_the_same_early_and_late) {
    std::vector<float> in(5 * 128);
    std::iota(in.begin(), in.end(), 1.f);
    Device<float> device(in.size());
    cudaMemcpy(device.p, in.data(), in.size() * 4, cudaMemcpyHostToDevice);
    for (const bool late : {true, false}) {
        settings.late_copies = late;
        Device<float> out(32);
        EXPECT(start(stages, 1, 32, 1024, nullptr, out.p, device.p, 5) == cudaSuccess, "%s",
               cudaGetErrorString(cudaErrorLaunchFailure));
        for (int i = 0; i < 32; i++) {
            float wanted = 0;
            for (int s = 0; s < 5; s++) wanted += s == 2 ? 0 : in[size_t(128 * s + 127 - i)];
            EXPECT(out.host()[size_t(i)] == wanted);
        }
    }
    settings.late_copies = true;
}

// ---------------------------------------------------------------------------------------------------------
// limits

static __global__ void uses_shared(float* out) {
    DYN_SHARED(float, tile);
    tile[threadIdx.x] = float(threadIdx.x);
    out[threadIdx.x] = tile[threadIdx.x];
}
TEST(shared_memory_has_the_limits_of_the_architecture) {
    struct Limit { int arch; size_t kilobytes; };
    const Limit limits[] = {{80, 163}, {86, 99}, {89, 99}, {90, 227}, {120, 99}};
    Device<float> out(32);
    const int before = settings.arch;
    for (const Limit& l : limits) {
        settings.arch = l.arch;
        int limit = 0;
        cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
        EXPECT(size_t(limit) == l.kilobytes << 10);
        EXPECT(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, limit + 1) !=
               cudaSuccess);
        EXPECT(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, limit) ==
               cudaSuccess);
        EXPECT(start(uses_shared, 1, 32, size_t(limit), nullptr, out.p) == cudaSuccess);
        EXPECT(start(uses_shared, 1, 32, size_t(limit) + 4, nullptr, out.p) != cudaSuccess);
    }
    // the last call counts, also with a lower limit
    EXPECT(cudaFuncSetAttribute(uses_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, 256) ==
           cudaSuccess);
    EXPECT(start(uses_shared, 1, 32, 260, nullptr, out.p) != cudaSuccess);
    settings.arch = before;
    cudaGetLastError();
}

// 128 bytes are static, which the emulation learns when the kernel runs.
static __global__ void uses_both(float* out) {
    DYN_SHARED(float, tile);
    SMEM(float[32], sums);
    sums[threadIdx.x] = tile[threadIdx.x] = 1;
    out[threadIdx.x] = sums[threadIdx.x];
}
TEST(static_and_dynamic_shared_memory_count_together) {
    Device<float> out(32);
    const size_t unasked = (48 << 10) - 128, most = emulator::shared_limit_of(settings.arch) - 128;
    const auto allow = [](size_t bytes) {
        return cudaFuncSetAttribute(uses_both, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
    };
    EXPECT(start(uses_both, 1, 32, unasked, nullptr, out.p) == cudaSuccess);
    EXPECT(start(uses_both, 1, 32, unasked + 1, nullptr, out.p) != cudaSuccess);
    EXPECT(allow(most) == cudaSuccess && start(uses_both, 1, 32, most, nullptr, out.p) == cudaSuccess);
    EXPECT(allow(most + 1) == cudaSuccess && start(uses_both, 1, 32, 0, nullptr, out.p) != cudaSuccess);
    cudaGetLastError();
}

TEST(impossible_blocks_and_grids_are_refused) {
    Device<float> out(32);
    EXPECT(start(uses_shared, 1, 1025, 4100, nullptr, out.p) != cudaSuccess);
    EXPECT(start(uses_shared, dim3(1, 65536), 1, 128, nullptr, out.p) != cudaSuccess);
    for (const dim3 grid : {dim3(0), dim3(1, 0), dim3(1, 1, 0), dim3(1, 1, 65536)})
        EXPECT(start(uses_shared, grid, 32, 128, nullptr, out.p) != cudaSuccess);
    for (const dim3 block : {dim3(0), dim3(1, 0), dim3(1, 1, 0), dim3(1, 1, 65), dim3(1, 1025)})
        EXPECT(start(uses_shared, 1, block, 4100, nullptr, out.p) != cudaSuccess);
    EXPECT(std::string(cudaGetErrorString(cudaErrorLaunchFailure)).find("uses_shared") != std::string::npos);
    cudaGetLastError();
}

// A store beyond a tensor is found after the launch in any build, by the red zone it changed.
static __global__ void off_by_one(int* out) { out[threadIdx.x + 1] = 7; }
TEST(red_zones_are_looked_at_after_each_launch) {
    Device<int> out(32);
    EXPECT(start(off_by_one, 1, 32, 0, nullptr, out.p) != cudaSuccess);
    const std::string text = cudaGetErrorString(cudaErrorLaunchFailure);
    EXPECT(text.find("red zone behind an allocation of 128") != std::string::npos, "%s", text.c_str());
    EXPECT(start(uses_shared, 1, 32, 128, nullptr, reinterpret_cast<float*>(out.p)) == cudaSuccess);
    cudaGetLastError();
}

// So is an access between the tensors of an arena, inside the allocation.
TEST(tensors_of_an_arena_have_red_zones) {
    Arena::red_zone = 256;
    {
        Arena arena;
        int *first = nullptr, *second = nullptr;
        arena.add("first", &first, 32);
        arena.add("second", &second, 32);
        arena.allocate([](size_t bytes) {
            void* p = nullptr;
            EXPECT(cudaMalloc(&p, bytes) == cudaSuccess && cudaMemset(p, 0, bytes) == cudaSuccess);
            return p;
        }, [](void* p, size_t) { EXPECT(cudaFree(p) == cudaSuccess); });
        EXPECT(start(off_by_one, 1, 31, 0, nullptr, first) == cudaSuccess);
        EXPECT(start(off_by_one, 1, 32, 0, nullptr, first) != cudaSuccess, "a store behind the first tensor");
        cudaGetLastError();
    }
    Arena::red_zone = 0;
}

TEST(copies_outside_of_an_allocation_are_refused) {
    Device<int> out(32);
    std::vector<int> host(64);
    EXPECT(cudaMemcpy(out.p, host.data(), 33 * 4, cudaMemcpyHostToDevice) != cudaSuccess);
    EXPECT(cudaMemcpy(host.data(), out.p + 1, 32 * 4, cudaMemcpyDeviceToHost) != cudaSuccess);
    EXPECT(cudaMemcpy(host.data(), host.data(), 4, cudaMemcpyDeviceToHost) != cudaSuccess);
    EXPECT(cudaMemset(out.p, 0, 33 * 4) != cudaSuccess);
    EXPECT(cudaFree(host.data()) != cudaSuccess);
    cudaGetLastError();
}

TEST(host_code_that_touches_device_memory_is_refused) {
    const std::string self = "/proc/" + std::to_string(getpid()) + "/exe";
    if (getenv("EMU_HOST")) {                            // the process below
        Device<int> out(32);
        start(uses_shared, 1, 32, 128, nullptr, reinterpret_cast<float*>(out.p));
        if (out.host()[0] == 0) *static_cast<volatile int*>(out.p) = 1;
        return;
    }
    const test::Ran ran = test::run("EMU_HOST=refuse '" + self + "' host_code");
    EXPECT(ran.code == 1, "exit code %d", ran.code);
    const char* says = "host code touches device memory at test/emulated/emulator_model.cpp:";
    EXPECT(ran.err.find(says) != std::string::npos, "%s", ran.err.c_str());
}

// What cublasLtMatmul() does not document is refused here as there: no algorithm is found.
TEST(products_that_cublaslt_does_not_have_are_refused) {
    const Gemm sound = {.m = 64, .n = 32, .k = 48, .a_transposed = true, .b_transposed = false,
                        .in = DType::BF16, .out = DType::BF16, .accumulate = false,
                        .epilogue = Epilogue::GeluBackward};
    EXPECT(!gemm_algorithms(sound).empty());
    Gemm wide = sound, ragged = sound, mixed = sound, unaligned = sound;
    wide.out = DType::F32;                              // GELU's input has the type of the operands
    EXPECT(gemm_algorithms(wide).empty());
    ragged.m = 68;                                      // the leading dimension of aux: a multiple of 8
    EXPECT(gemm_algorithms(ragged).empty());
    mixed.in = DType::F32, mixed.epilogue = Epilogue::Bias;     // FP32 operands, a result in BF16
    EXPECT(gemm_algorithms(mixed).empty());
    unaligned.k = 52, unaligned.epilogue = Epilogue::Bias;      // rows of A at multiples of 16 bytes
    EXPECT(gemm_algorithms(unaligned).empty());
}
