#include <string>

#include "llmc/ops/cuda/ptx_hopper.h"
#include "test/ptx_goldens.h"

#define PRECISION bf16
#include "llmc/ops/cuda/kernel.h"

using ptx::Major;

static constexpr int kTileWords = 2048;                // 64 rows of 128 bytes

// What the words of two operands give, whatever they mean; of each thread a sum of its sums, and one of them.
template <bool registers, Major A, Major B, int N>
static __global__ void golden_wgmma(float* out, const uint32_t* in) {
    DYN_SHARED(uint32_t, tile);
    const int i = int(threadIdx.x);
    for (int w = i; w < kTileWords * (1 + N / 64); w += 128) tile[w] = in[w];
    uint32_t fragment[4];
    for (int r = 0; r < 4; r++) fragment[r] = in[4 * i + r];
    float d[N / 2];
    for (float& x : d) x = 1;
    ptx::fence_proxy_async();
    __syncthreads();
    const uint64_t a = ptx::wgmma_descriptor(tile, 8192, 1024);
    const uint64_t b = ptx::wgmma_descriptor(tile + kTileWords, 8192, 1024);
    ptx::wgmma_fence(d);
    if constexpr (registers) ptx::wgmma<B>(d, fragment, b, true);
    else ptx::wgmma<A, B>(d, a, b, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>(d);
    float sum = 0;
    for (int r = 0; r < N / 2; r++) sum += d[r] * float(r % 5 + 1);
    out[2 * i] = sum;
    out[2 * i + 1] = d[17];
}

struct GoldenMaps { CUtensorMap flat, deep; };

// Boxes over the ends of a tensor, in two and in four dimensions.
static __global__ void golden_tma(uint32_t* out, const __grid_constant__ GoldenMaps maps) {
    DYN_SHARED(uint32_t, tile);
    auto* full = reinterpret_cast<uint64_t*>(tile + 1024);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_fence_init();
        ptx::mbarrier_arrive_expect(full, 4096);
        ptx::tma_load_2d(tile, &maps.flat, full, -8, 9);
        ptx::tma_load_4d(tile + 512, &maps.deep, full, 8, 1, -2, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    for (int i = int(threadIdx.x); i < 1024; i += 128) out[i] = tile[i];
}

// Two tiles through one stage, from a producer to two groups; the second adds to what the first left.
static __global__ void __launch_bounds__(384, 1) golden_groups(uint32_t* out,
                                                               const __grid_constant__ GoldenMaps maps) {
    DYN_SHARED(uint32_t, tile);
    auto *full = reinterpret_cast<uint64_t*>(tile + 512), *empty = full + 1;
    const int group = int(threadIdx.x) / 128, i = int(threadIdx.x) % 128;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::mbarrier_init(empty, 256);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    if (group == 0) {
        ptx::registers_less<24>();
        for (int step = 0; step < 2 && i == 0; step++) {
            ptx::mbarrier_wait(empty, unsigned(step) ^ 1);
            ptx::mbarrier_arrive_expect(full, 2048);
            ptx::tma_load_2d(tile, &maps.flat, full, 0, 3 * step);
        }
        return;
    }
    ptx::registers_more<240>();
    for (int step = 0; step < 2; step++) {
        ptx::mbarrier_wait(full, unsigned(step));
        if (group == 1) out[128 * step + i] = tile[i];
        if (group == 1) ptx::barrier_arrive<1, 256>();
        else ptx::barrier_sync<1, 256>();
        if (group == 2) out[128 * step + i] += tile[128 + i];
        ptx::fence_proxy_async();
        ptx::mbarrier_arrive(empty);
    }
}

// ---------------------------------------------------------------------------------------------------------

namespace {
// Two bfloat16 to a word, whole numbers from -8 to 7: sums are exact.
std::vector<uint32_t> whole_words(size_t count) {
    std::vector<uint32_t> w(count);
    const auto bits = [](uint32_t i) { return uint32_t(bfloat16(float(int(i >> 9 & 15) - 8)).bits); };
    for (uint32_t i = 0; i < w.size(); i++) w[i] = bits(i * 2654435761u) | bits(i * 40503u + 77777u) << 16;
    return w;
}

// Boxes of (16, 64) of rows, or of (2, 1, 4, 64) of a tensor, of bfloat16.
GoldenMaps maps_of(void* data) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                                &found));
    const auto encode = [&](CUtensorMap* map, unsigned rank, const uint64_t* sizes, const uint64_t* strides,
                            const uint32_t* box) {
        const uint32_t steps[4] = {1, 1, 1, 1};
        const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
            map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, data, sizes, strides, box, steps,
            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled gives {}", int(result));
    };
    GoldenMaps maps;
    const uint64_t flat[2] = {64, 20}, row = 128, deep[4] = {64, 2, 3, 2}, strides[3] = {128, 256, 768};
    const uint32_t flat_box[2] = {64, 16}, deep_box[4] = {64, 1, 8, 2};
    encode(&maps.flat, 2, flat, &row, flat_box);
    encode(&maps.deep, 4, deep, strides, deep_box);
    return maps;
}
}  // namespace

std::vector<Golden> ptx_hopper_goldens() {
    cuda_device();
    int major = 0;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    std::vector<Golden> goldens;
    if (major != 9) return goldens;
    void *in, *out;
    const auto words = whole_words(5 * kTileWords);
    CUDA_CHECK(cudaMalloc(&in, words.size() * 4));
    CUDA_CHECK(cudaMalloc(&out, 4096));
    CUDA_CHECK(cudaMemcpy(in, words.data(), words.size() * 4, cudaMemcpyHostToDevice));
    const auto keep = [&](const std::string& name, size_t count) {
        std::vector<uint32_t> w(count);
        CUDA_CHECK(cudaStreamSynchronize(cuda_device().compute));
        CUDA_CHECK(cudaMemcpy(w.data(), out, count * 4, cudaMemcpyDeviceToHost));
        goldens.push_back({name, w});
    };
    const auto product = [&](auto kernel, int N, const char* name) {
        launch(kernel, 1, 128, size_t(8192 * (1 + N / 64)), {}, static_cast<float*>(out),
               static_cast<const uint32_t*>(in));
        keep(fmt::format("wgmma {}, N = {}", name, N), 256);
    };
    constexpr Major K = Major::K, MN = Major::MN;
    product(golden_wgmma<false, K, K, 64>, 64, "K K");
    product(golden_wgmma<false, K, MN, 64>, 64, "K MN");
    product(golden_wgmma<false, MN, K, 64>, 64, "MN K");
    product(golden_wgmma<false, MN, MN, 64>, 64, "MN MN");
    product(golden_wgmma<true, K, K, 64>, 64, "registers K");
    product(golden_wgmma<true, K, MN, 64>, 64, "registers MN");
    product(golden_wgmma<false, K, MN, 128>, 128, "K MN");
    product(golden_wgmma<false, K, K, 192>, 192, "K K");
    product(golden_wgmma<true, K, MN, 256>, 256, "registers MN");
    const GoldenMaps maps = maps_of(in);
    launch(golden_tma, 1, 128, 4096 + 64, {}, static_cast<uint32_t*>(out), maps);
    keep("tma_load_2d, 4d", 1024);
    launch(golden_groups, 1, 384, 2048 + 64, {}, static_cast<uint32_t*>(out), maps);
    keep("mbarriers and warp groups", 256);
    cudaFree(in);
    cudaFree(out);
    return goldens;
}
