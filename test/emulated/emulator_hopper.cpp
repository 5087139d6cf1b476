// The emulated mbarriers, TMA, named barriers and setmaxnreg of ptx_hopper.h: what they do, what they refuse.
#include <cuda_runtime.h>

#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;
using emulator::error_of;
using emulator::in_every_order;

template <class... P, class... A>
static void start(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
    const std::string error = error_of(kernel, grid, block, shared, arguments...);
    EXPECT(error.empty(), "%s", error.c_str());
}
static bool says(const std::string& text, const char* what) { return text.find(what) != std::string::npos; }

// ---------------------------------------------------------------------------------------------------------
// maps

// A tensor of 2-byte elements; strides in bytes, of the dimensions behind the first.
struct Map {
    std::vector<uint64_t> sizes, strides;
    std::vector<uint32_t> box;
    bool swizzled = true;
    uint32_t step = 1;
    CUtensorMap encoded = {};
    CUresult result = CUDA_SUCCESS;

    Map& encode(const void* address) {
        void* function = nullptr;
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                         &found);
        EXPECT(function && found == cudaDriverEntryPointSuccess);
        const std::vector<uint32_t> steps(sizes.size(), step);
        result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
            &encoded, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, unsigned(sizes.size()), const_cast<void*>(address),
            sizes.data(), strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        return *this;
    }
};

TEST(maps_are_refused_as_by_the_driver) {
    alignas(16) static char memory[64];
    const auto result = [](Map m, size_t off = 0) { return m.encode(memory + off).result; };
    const Map good = {{64, 100}, {128}, {64, 256}};
    EXPECT(result(good) == CUDA_SUCCESS);
    EXPECT(result(good, 8) == CUDA_ERROR_INVALID_VALUE);                           // address
    const auto bad = [&](auto change) {
        Map m = good;
        change(m);
        return result(m) == CUDA_ERROR_INVALID_VALUE;
    };
    EXPECT(bad([](Map& m) { m.box[1] = 257; }) && bad([](Map& m) { m.box[1] = 0; }));
    EXPECT(bad([](Map& m) { m.box[0] = 72; }) && bad([](Map& m) { m.box[0] = 60; }));
    EXPECT(bad([](Map& m) { m.strides[0] = 136; }) && bad([](Map& m) { m.strides[0] = uint64_t(1) << 40; }));
    EXPECT(bad([](Map& m) { m.sizes[1] = 0; }) && bad([](Map& m) { m.step = 9; }));
    EXPECT(bad([](Map& m) { m.sizes.resize(6, 1), m.strides.resize(5, 128), m.box.resize(6, 1); }));
    void* function;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion("cuNothing", &function, 12000, cudaEnableDefault, &found);
    EXPECT(!function && found == cudaDriverEntryPointSymbolNotFound);
}

// ---------------------------------------------------------------------------------------------------------
// loads

struct At { int c[4]; };
template <int rank>
static __global__ void load_box(uint16_t* out, const __grid_constant__ CUtensorMap map, At at, int elements) {
    DYN_SHARED(uint16_t, tile);
    auto* b = reinterpret_cast<uint64_t*>(tile + elements);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(b, 1);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        ptx::mbarrier_arrive_expect(b, unsigned(elements) * 2);
        if constexpr (rank == 4) ptx::tma_load_4d(tile, &map, b, at.c[0], at.c[1], at.c[2], at.c[3]);
        else ptx::tma_load_2d(tile, &map, b, at.c[0], at.c[1]);
    }
    ptx::mbarrier_wait(b, 0);
    for (int i = int(threadIdx.x); i < elements; i += 64) out[i] = tile[i];
}

// (T = 5, heads = 3, B = 2, D = 64) within rows of 256 elements; boxes that hang over each end.
static void check_boxes() {
    std::vector<uint16_t> in(2 * 5 * 256);
    for (size_t i = 0; i < in.size(); i++) in[i] = uint16_t(i + 1);
    const Device<uint16_t> on(in), out(size_t(64 * 16));
    Map map = {{64, 3, 5, 2}, {128, 512, 5 * 512}, {64, 1, 8, 2}};
    map.encode(on.p);
    for (const At at : {At{{0, 1, 0, 0}}, At{{0, 2, 2, 0}}, At{{0, 3, 0, 0}}, At{{0, 0, -3, 1}},
                        At{{8, 0, 0, 0}}, At{{-8, 0, 1, -1}}, At{{64, 0, 0, 0}}}) {
        start(load_box<4>, 1, 64, 2048 + 8, out.p, map.encoded, at, 64 * 16);
        const auto got = out.host();
        for (int r = 0; r < 16; r++)
            for (int c = 0; c < 64; c++) {
                const int d = at.c[0] + c, h = at.c[1], t = at.c[2] + r % 8, b = at.c[3] + r / 8;
                const bool there = d >= 0 && d < 64 && h >= 0 && h < 3 && t >= 0 && t < 5 && b >= 0 && b < 2;
                const int wanted = there ? 1 + d + 64 * h + 256 * (t + 5 * b) : 0;
                const int found = got[size_t(64 * r + 8 * (c / 8 ^ r % 8) + c % 8)];
                EXPECT(found == wanted, "row %d, column %d of the box at %d %d %d %d: %d, not %d", r, c,
                       at.c[0], at.c[1], at.c[2], at.c[3], found, wanted);
            }
    }
}
TEST(boxes_arrive_swizzled_with_zeros_outside) { in_every_order(check_boxes); }

TEST(boxes_arrive_plain_without_a_swizzle) {
    std::vector<uint16_t> in(7 * 32);
    for (size_t i = 0; i < in.size(); i++) in[i] = uint16_t(i + 1);
    const Device<uint16_t> on(in), out(size_t(16 * 4));
    Map map = {{20, 7}, {64}, {16, 4}, false};
    map.encode(on.p);
    start(load_box<2>, 1, 64, 128 + 8, out.p, map.encoded, At{{8, 5}}, 64);
    const auto got = out.host();
    for (size_t r = 0; r < 4; r++)
        for (size_t c = 0; c < 16; c++) {
            const int wanted = r < 2 && c < 12 ? int(1 + 8 + c + 32 * (5 + r)) : 0;
            EXPECT(got[16 * r + c] == wanted, "(%zu, %zu) is %d, not %d", r, c, got[16 * r + c], wanted);
        }
}

// A producer's thread loads tiles of 8 rows into two stages; two groups of 128 threads add up each tile. The
// groups alternate by named barriers, as a ping-pong does.
static __global__ void __launch_bounds__(384, 1) pipeline(float* out, const __grid_constant__ CUtensorMap map,
                                                          int tiles) {
    DYN_SHARED(bfloat16, stages);
    auto* full = reinterpret_cast<uint64_t*>(stages + 2 * 512);
    uint64_t* empty = full + 2;
    const int group = int(threadIdx.x) / 128, i = int(threadIdx.x) % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            ptx::mbarrier_init(full + s, 1);
            ptx::mbarrier_init(empty + s, 256);
        }
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    if (group == 0) {
        ptx::registers_less<24>();
        for (int tile = 0; tile < tiles && i == 0; tile++) {
            const int stage = tile % 2, phase = tile / 2 % 2;
            ptx::mbarrier_wait(empty + stage, phase ^ 1);
            ptx::mbarrier_arrive_expect(full + stage, 1024);
            ptx::tma_load_2d(stages + 512 * stage, &map, full + stage, 0, 8 * tile);
        }
    } else {
        ptx::registers_more<240>();
        float sum = 0;
        if (group == 2) ptx::barrier_arrive<1, 256>();
        for (int tile = 0; tile < tiles; tile++) {
            const int stage = tile % 2, phase = tile / 2 % 2;
            ptx::mbarrier_wait(full + stage, phase);
            if (group == 1) ptx::barrier_sync<1, 256>();
            else ptx::barrier_sync<2, 256>();
            for (int e = 0; e < 4; e++) sum += float(stages[512 * stage + 4 * i + e]);
            if (group == 1) ptx::barrier_arrive<2, 256>();
            else ptx::barrier_arrive<1, 256>();
            ptx::fence_proxy_async();
            ptx::mbarrier_arrive(empty + stage);
        }
        if (group == 1) ptx::barrier_sync<1, 256>();
        out[128 * (group - 1) + i] = sum;
    }
}
TEST(a_pipeline_moves_every_tile) {
    constexpr int tiles = 9;
    std::vector<bfloat16> in(64 * 8 * tiles);
    for (size_t i = 0; i < in.size(); i++) in[i] = bfloat16(float(i % 13));
    float wanted = 0;
    for (const bfloat16 x : in) wanted += float(x);
    const Device<bfloat16> on(in);
    Map map = {{64, 8 * tiles}, {128}, {64, 8}};
    map.encode(on.p);
    in_every_order([&] {
        const Device<float> out(std::vector<float>(256));
        start(pipeline, 2, 384, 2 * 1024 + 64, out.p, map.encoded, tiles);
        const auto got = out.host();
        for (int group = 0; group < 2; group++) {
            float sum = 0;
            for (size_t i = 0; i < 128; i++) sum += got[size_t(128 * group) + i];
            EXPECT(sum == wanted, "group %d: %g, not %g", group, sum, wanted);
        }
    });
}

// ---------------------------------------------------------------------------------------------------------
// reports

static __global__ void waits_for_more(int bytes, const __grid_constant__ CUtensorMap map) {
    DYN_SHARED(bfloat16, tile);
    auto* b = reinterpret_cast<uint64_t*>(tile + 512);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(b, 2);
        ptx::mbarrier_fence_init();
        ptx::mbarrier_arrive_expect(b, unsigned(bytes));
        ptx::tma_load_2d(tile, &map, b, 0, 0);
    }
    __syncthreads();
    if (threadIdx.x == 1 && bytes != 1024) ptx::mbarrier_arrive(b);
    ptx::mbarrier_wait(b, 0);
}
TEST(a_deadlock_tells_barrier_phase_and_what_is_missing) {
    const Device<bfloat16> on(size_t(64 * 8));
    Map map = {{64, 8}, {128}, {64, 8}};
    map.encode(on.p);
    const auto report = [&](int bytes) { return error_of(waits_for_more, 1, 32, 2048, bytes, map.encoded); };
    EXPECT(says(report(1024), "deadlock: waits in mbarrier_wait at byte 1024 of shared memory, phase 0 "
                              "(parity 0): 1 of 2 arrivals are missing"), "%s", report(1024).c_str());
    EXPECT(says(report(1040), "phase 0 (parity 0): 16 bytes of loads are missing"), "%s",
           report(1040).c_str());
    EXPECT(says(report(1008), "16 bytes more have come than were announced"), "%s", report(1008).c_str());
}

template <int less, int more> static __global__ void __launch_bounds__(384, 1) trade() {
    if (threadIdx.x < 128) ptx::registers_less<less>();
    else ptx::registers_more<more>();
}
TEST(registers_come_from_the_groups_that_gave) {
    in_every_order([] {
        const std::string fits = error_of(trade<24, 240>, 1, 384, 0);
        const std::string over = error_of(trade<32, 240>, 1, 384, 0);
        EXPECT(fits.empty(), "%s", fits.c_str());
        EXPECT(says(over, "deadlock: waits in registers_more for 9216 registers, of which 8192 are free"),
               "%s", over.c_str());
    });
    const std::string wrong = error_of(trade<24, 160>, 1, 384, 0);
    EXPECT(says(wrong, "more registers a thread, 160, where the warp group has 168"), "%s", wrong.c_str());
}
