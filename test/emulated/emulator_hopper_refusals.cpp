// What the emulation refuses of Hopper's instructions, beside the bugs of planted_hopper.cu and
// planted_wgmma.cu: each mistake has its words, and any order of loads is one that a kernel must bear.
#include <cuda_runtime.h>

#include <set>
#include <vector>

#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/emulator/testing.h"
#include "test/test.h"

using emulator::Device;
using ptx::Major;

static constexpr size_t kTile = 16384, kShared = kTile + 64;      // bytes: 128 rows of 128, then mbarriers

template <class F> static __global__ void mistaken(F f) {
    DYN_SHARED(float, tile);
    f(tile, reinterpret_cast<uint64_t*>(tile + kTile / 4));
}
template <class F> static void refused(const char* says, F f, unsigned threads = 128) {
    emulator::settings.timeout = 0.1;
    const std::string text = emulator::error_of(mistaken<F>, 1, threads, kShared, f);
    EXPECT(text.find(says) != std::string::npos, "expected \"%s\", is: %s", says, text.c_str());
}
// By one thread, of an mbarrier of `arrivals` that TMA knows.
template <class F> static void refused_of_barrier(const char* says, int arrivals, F f) {
    refused(says, [=](float* tile, uint64_t* b) {
        if (threadIdx.x != 0) return;
        ptx::mbarrier_init(b, arrivals);
        ptx::mbarrier_fence_init();
        f(tile, b);
    });
}

TEST(mistakes_at_an_mbarrier_are_told) {
    refused_of_barrier("arrives at the mbarrier at byte 16384, whose 1 arrivals of phase 0 have all come", 1,
                       [](float*, uint64_t* b) {
                           ptx::mbarrier_arrive_expect(b, 16);
                           ptx::mbarrier_arrive(b);
                       });
    refused_of_barrier("the mbarrier at byte 16384 is to wait for 1048576 bytes: at most 1048575", 2,
                       [](float*, uint64_t* b) {
                           ptx::mbarrier_arrive_expect(b, 1 << 19);
                           ptx::mbarrier_arrive_expect(b, 1 << 19);
                       });
    refused_of_barrier("waits for parity 2 of an mbarrier", 1,
                       [](float*, uint64_t* b) { ptx::mbarrier_wait(b, 2); });
    refused_of_barrier("the mbarrier at byte 16384 is there already", 1,
                       [](float*, uint64_t* b) { ptx::mbarrier_init(b, 1); });
    refused_of_barrier("no mbarrier_init has made an mbarrier at", 1,
                       [](float*, uint64_t* b) { ptx::mbarrier_arrive(b + 1); });
    refused("an mbarrier of 0 arrivals", [](float*, uint64_t* b) { ptx::mbarrier_init(b, 0); });
    refused("misaligned: an mbarrier at byte 4 of shared memory", [](float* tile, uint64_t*) {
        ptx::mbarrier_init(reinterpret_cast<uint64_t*>(tile + 1), 1);
    });
    refused("not in the block's dynamic shared memory", [](float*, uint64_t* b) {
        ptx::mbarrier_init(b + 8, 1);
    });
}

// ---------------------------------------------------------------------------------------------------------
// TMA

// Of 64 rows of 64 elements, in boxes of 64 rows.
static CUtensorMap map_of(bfloat16* data) {
    void* function = nullptr;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault);
    const uint64_t sizes[2] = {64, 64}, stride = 128;
    const uint32_t box[2] = {64, 64}, steps[2] = {1, 1};
    CUtensorMap map;
    const CUresult made = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, sizes, &stride, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    EXPECT(made == CUDA_SUCCESS);
    return map;
}

TEST(mistakes_of_a_load_are_told) {
    const Device<bfloat16> data(size_t(64 * 64));
    const CUtensorMap map = map_of(data.p), none = {};
    refused_of_barrier("TMA by what cuTensorMapEncodeTiled has not made", 1,
                       [=](float* tile, uint64_t* b) { ptx::tma_load_2d(tile, &none, b, 0, 0); });
    refused_of_barrier("TMA in 4 dimensions by a map of 2", 1,
                       [=](float* tile, uint64_t* b) { ptx::tma_load_4d(tile, &map, b, 0, 0, 0, 0); });
    refused_of_barrier("where no mbarrier is", 1,
                       [=](float* tile, uint64_t* b) { ptx::tma_load_2d(tile, &map, b + 1, 0, 0); });
    refused_of_barrier("out of bounds: TMA at", 1, [=](float* tile, uint64_t* b) {
        ptx::tma_load_2d(tile + 10240 / 4, &map, b, 0, 0);
    });
}

// Waits for the second of two loads and reads the first: some order of loads must show the mistake.
static __global__ void reads_the_other(float* out, const __grid_constant__ CUtensorMap map) {
    DYN_SHARED(bfloat16, tiles);
    auto* b = reinterpret_cast<uint64_t*>(tiles + kTile / 2);
    if (threadIdx.x != 0) return;
    for (int i = 0; i < 2; i++) ptx::mbarrier_init(b + i, 1);
    ptx::mbarrier_fence_init();
    for (int i = 0; i < 2; i++) {
        ptx::mbarrier_arrive_expect(b + i, 8192);
        ptx::tma_load_2d(tiles + i * 4096, &map, b + i, 0, 0);
    }
    ptx::mbarrier_wait(b + 1, 0);
    *out = float(tiles[0]);
    ptx::mbarrier_wait(b, 0);
}

TEST(loads_arrive_in_any_order) {
    const Device<bfloat16> ones(std::vector<bfloat16>(64 * 64, bfloat16(1.f)));
    const Device<float> out(size_t(1));
    const CUtensorMap map = map_of(ones.p);
    std::set<bool> came;
    emulator::in_every_order([&] {
        const std::string error = emulator::error_of(reads_the_other, 1, 32, kShared, out.p, map);
        EXPECT(error.empty(), "%s", error.c_str());
        came.insert(out.host()[0] == 1);
    });
    EXPECT(came.size() == 2, "the first load is %s there", came.contains(true) ? "always" : "never");
}

// ---------------------------------------------------------------------------------------------------------
// warp groups

TEST(mistakes_at_a_named_barrier_are_told) {
    refused("named barrier 16: 1 to 15", [](float*, uint64_t*) { ptx::barrier_arrive<16, 128>(); });
    refused("named barrier 1 of 48 threads: a multiple of 32, at most the block's 128",
            [](float*, uint64_t*) { ptx::barrier_arrive<1, 48>(); });
    refused("of 160 threads: a multiple of 32", [](float*, uint64_t*) { ptx::barrier_arrive<1, 160>(); });
    refused(" threads, where others have come to one of ", [](float*, uint64_t*) {
        if (threadIdx.x < 32) ptx::barrier_arrive<1, 64>();
        else ptx::barrier_arrive<1, 96>();
    });
    refused("comes twice to named barrier 2", [](float*, uint64_t*) {
        if (threadIdx.x != 0) return;
        ptx::barrier_arrive<2, 64>();
        ptx::barrier_arrive<2, 64>();
    });
}

TEST(mistakes_of_setmaxnreg_are_told) {
    refused("20 registers a thread: a multiple of 8 from 24 to 256",
            [](float*, uint64_t*) { ptx::registers_less<20>(); });
    refused(" registers a thread, where other warps of the group say ", [](float*, uint64_t*) {
        if (threadIdx.x < 64) ptx::registers_less<24>();
        else ptx::registers_less<32>();
    });
}

// change(descriptor) of the product's operands.
template <class F> static auto product(F change, bool fenced = true) {
    return [=](float* tile, uint64_t*) {
        float d[32] = {};
        const uint64_t good = ptx::wgmma_descriptor(tile, 16, 1024);
        if (fenced) ptx::wgmma_fence(d);
        ptx::wgmma<Major::K, Major::K>(d, good, change(good), false);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    };
}

TEST(mistakes_of_a_product_are_told) {
    const auto same = [](uint64_t b) { return b; };
    refused("wgmma, and no wgmma_fence before it", product(same, false));
    refused("wgmma by fewer than the 128 threads of a warp group", product(same), 96);
    refused("wgmma with other operands than other threads", product([](uint64_t b) {
        return b + (threadIdx.x == 77 ? 64 : 0);
    }));
    refused("of another swizzle than that of 128 bytes", product([](uint64_t b) {
        return b ^ uint64_t(3) << 62;
    }));
    refused("misaligned: a swizzled tile of wgmma at byte 112", product([](uint64_t b) {
        return b + (112 >> 4);                          // 16 of the sum lie across two rows
    }));
    refused("eight rows of a swizzled tile of wgmma lie 512 bytes from the next", product([](uint64_t b) {
        return b - (uint64_t(512 >> 4) << 32);
    }));
    refused("out of bounds: wgmma reads byte", product([](uint64_t b) { return b + ((kTile - 1024) >> 4); }));
    refused("leading 8, stride 1024: multiples of 16", [](float* tile, uint64_t*) {
        ptx::wgmma_descriptor(tile, 8, 1024);
    });
}

TEST(mistakes_about_sums_are_told) {
    refused("wgmma writes a part of sums", [](float* tile, uint64_t*) {
        float d[64] = {};
        const uint64_t a = ptx::wgmma_descriptor(tile, 16, 1024);
        ptx::wgmma_fence(d);
        ptx::wgmma<Major::K, Major::K>(d, a, a, false);
        ptx::wgmma<Major::K, Major::K>(reinterpret_cast<float(&)[32]>(d), a, a, false);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    });
    refused("somebody has written sums of a wgmma before the wait", [](float* tile, uint64_t*) {
        float d[32] = {};
        const uint64_t a = ptx::wgmma_descriptor(tile, 16, 1024);
        ptx::wgmma_fence(d);
        ptx::wgmma<Major::K, Major::K>(d, a, a, false);
        ptx::wgmma_commit();
        d[3] = 1;
        ptx::wgmma_wait<0>(d);
    });
    refused("waits in wgmma_wait for other threads of the warp group", [](float* tile, uint64_t*) {
        if (threadIdx.x >= 96) return;
        float d[32] = {};
        const uint64_t a = ptx::wgmma_descriptor(tile, 16, 1024);
        ptx::wgmma_fence(d);
        ptx::wgmma<Major::K, Major::K>(d, a, a, false);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>(d);
    });
}
