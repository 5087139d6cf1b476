// A product by wgmma and TMA, BF16, and what follows it before anything is stored: for
// wgmma_forward_products.cu and wgmma_backward_products.cu.
//
//     sum (N, W) = left (N, K) right (K, W)          FP32; then an Epilogue: the sums of a row, rounded
//
// Right is w^T, forward, with w (W, K) row by row, or w (K, W), backward. Sums stay in registers. A block
// computes tiles of 128 rows, 64 of each consumer, and Columns columns. Its ring of stages holds 64 of K
// each, the next tile's while the consumers store. What lies outside of the tensors is zero, and is not
// stored.
#pragma once
#include "llmc/ops/cuda/products/fused_products.h"
#include "llmc/ops/cuda/sums.h"
#include "llmc/ops/cuda/tensor_map.h"
#include "llmc/ops/cuda/warp_groups.h"

namespace PRECISION {
namespace cuda {

struct ProductMaps { CUtensorMap left, right; };
static_assert(kTileSumRows == kOwn);

// Shared memory: a stage has kBoxColumns of K.
template <int Columns> struct ProductTiles {
    static constexpr int left = kOwned * kBoxColumns, right = Columns * kBoxColumns;     // elements
    static constexpr unsigned stage_bytes = (left + right) * sizeof(floatX);
    static constexpr int stages = (224 << 10) / stage_bytes;
    using Stages = Ring<stages>;
    // and a row of sums for each warp that consumes
    using Sums = float[2 * kGroup / 32][Columns];
    static constexpr size_t bytes = stages * stage_bytes + sizeof(Sums) + sizeof(Stages);
};

// The order of the tiles. Blocks at work share rows of few tiles and all columns, which stay in L2.
struct TileOrder {
    int rows, columns;                  // tiles
    struct Tile { int row, column; };

    __host__ __device__ unsigned count() const { return unsigned(rows) * unsigned(columns); }
    __device__ __forceinline__ Tile at(unsigned n) const {
        constexpr unsigned kTogether = 16;
        const unsigned first = n / (kTogether * columns) * kTogether, in = n - first * columns;
        const unsigned here = min(kTogether, rows - first);
        return {int(first + in % here), int(in / here)};
    }
};

// sum (64, Columns) += of a stage, for 64 rows of left.
template <ptx::Major Right, int R>
static __device__ __forceinline__ void multiply(float (&sum)[R], const floatX* left, const floatX* right,
                                                bool accumulate) {
    constexpr unsigned slab = kBoxColumns * kBoxColumns * sizeof(floatX);
    #pragma unroll
    for (int k = 0; k < kBoxColumns; k += 16)
        ptx::wgmma<ptx::Major::K, Right>(
            sum, ptx::wgmma_descriptor(left + k, 16, 1024),
            Right == ptx::Major::K ? ptx::wgmma_descriptor(right + k, 16, 1024)
                                   : ptx::wgmma_descriptor(right + k * kBoxColumns, slab, 1024),
            accumulate || k > 0);
}

// By one thread: the stages of this block's tiles. A tile has rows of one part of w, or, with a gate, as many
// of each half.
template <class Epilogue, class Tiles, int Columns>
static __device__ __forceinline__ void produce_stages(floatX* first, typename Tiles::Stages& ring,
                                                      const ProductMaps& maps, const TileOrder& order,
                                                      int K) {
    constexpr int width = Columns / Epilogue::parts;
    int n = 0;
    for (unsigned t = blockIdx.x; t < order.count(); t += gridDim.x) {
        const TileOrder::Tile tile = order.at(t);
        const int column = tile.column * width;
        for (int k = 0; k < K; k += kBoxColumns, n++) {
            floatX* const left = first + n % Tiles::stages * (Tiles::left + Tiles::right);
            floatX* const right = left + Tiles::left;
            uint64_t* const full = ring.tile(n);
            ring.wait_empty(n);
            ptx::mbarrier_arrive_expect(full, Tiles::stage_bytes);
            ptx::tma_load_4d(left, &maps.left, full, k, 0, tile.row * kOwned, 0);
            if constexpr (Epilogue::right == ptx::Major::K)
                for (int part = 0; part < Epilogue::parts; part++)
                    ptx::tma_load_4d(right + part * width * kBoxColumns, &maps.right, full, k, 0, column,
                                     part);
            else
                for (int c = 0; c < Columns; c += kBoxColumns)
                    ptx::tma_load_4d(right + c * kBoxColumns, &maps.right, full, column + c, 0, k, 0);
        }
    }
}

// The bias of this thread's columns among the 32 from `column` on, of a part; 0 without.
struct alignas(2 * sizeof(floatX)) TwoValues { floatX of[2]; };
static __device__ __forceinline__ void load_bias(float (&bias)[8], const FusedTensors& t, int part,
                                                 int column) {
    #pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const int at = column + column_of(2 * i) + first_column();
        TwoValues two = {};
        if (t.bias && at < t.width)
            two = load_cached(reinterpret_cast<const TwoValues*>(t.bias + part * t.width + at));
        bias[i] = float(two.of[0]), bias[i + 1] = float(two.of[1]);
    }
}

// Sums of 32 columns of a row: rounded, a pack for each lane of the quad that shares the row.
template <bool Biased>
static __device__ __forceinline__ Pack rounded(const float* sum, const float (&bias)[8]) {
    uint32_t w[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        float low = sum[4 * i], high = sum[4 * i + 1];
        if constexpr (Biased) low += bias[2 * i], high += bias[2 * i + 1];
        w[i] = ptx::pack_bf16(low, high);
    }
    transpose_quad(w);
    return std::bit_cast<Pack>(uint4{w[0], w[1], w[2], w[3]});
}

// What becomes of a consumer's sums: rows from `first` on, columns from `column` on. What the Epilogue reads
// is on its way for several packs before the first is used.
// Epilogues that sum columns leave those of the warp's 16 rows in of_warp.
template <class Epilogue, int R>
static __device__ __forceinline__ void finish(const float (&sum)[R], const FusedTensors& t, int first,
                                              int column, float* of_warp) {
    constexpr int parts = Epilogue::parts, width = 2 * R / parts, ahead = Epilogue::ahead;
    const int row = first + row_of_group();
    column += threadIdx.x % 4 * Pack::size;
    #pragma unroll
    for (int from = 0; from < width; from += ahead) {
        typename Epilogue::Read read[ahead / 32][2];
        #pragma unroll
        for (int i = 0; i < ahead / 16; i++) {
            const int r = row + i % 2 * 8, c = column + from + i / 2 * 32;
            if (r < t.N && c < t.width) read[i / 2][i % 2] = Epilogue::load(t, r, c);
        }
        #pragma unroll
        for (int within = from; within < from + ahead; within += 32) {
            float bias[parts][8] = {};
            #pragma unroll
            for (int part = 0; Epilogue::biased && part < parts; part++)
                load_bias(bias[part], t, part, column - threadIdx.x % 4 * Pack::size + within);
            float two_rows[8] = {};
            #pragma unroll
            for (int second = 0; second < 2; second++) {
                const float* const of_row = sum + within / 2 + 2 * second;
                Pack packs[parts];
                #pragma unroll
                for (int part = 0; part < parts; part++)
                    packs[part] = rounded<Epilogue::biased>(of_row + part * width / 2, bias[part]);
                const int r = row + 8 * second, c = column + within;
                if (r < t.N && c < t.width) {
                    const auto& was_read = read[(within - from) / 32][second];
                    if constexpr (Epilogue::sums_columns)
                        add_pack(two_rows, Epilogue::store(t, r, c, packs, was_read));
                    else
                        Epilogue::store(t, r, c, packs, was_read);
                }
            }
            if constexpr (Epilogue::sums_columns) {
                const int lane = threadIdx.x % 32;
                if (t.column_sums) of_warp[within + lane % 4 * 8 + lane / 4] = sum_of_8(two_rows);
            }
        }
    }
}

// A consumer's rows of sums become one, warp by warp, in column_sums. All its threads call.
template <int Columns>
static __device__ __forceinline__ void store_column_sums(const FusedTensors& t,
                                                         const float (*of_warps)[Columns], int consumer,
                                                         int row, int column) {
    group_sync(consumer);
    for (int c = threadIdx.x % kGroup; c < Columns; c += kGroup) {
        float total = 0;
        #pragma unroll
        for (int warp = 0; warp < kGroup / 32; warp++) total += of_warps[consumer * kGroup / 32 + warp][c];
        if (column + c < t.width) t.column_sums[size_t(row) * t.width + column + c] = total;
    }
    group_sync(consumer);                                   // the rows may be written again
}

// FLOOR bytes = (columns N K + rows W K + what the epilogue moves) sizeof(floatX) + 8 rows W with sums, for
// tiles in so many rows and columns, whose operands come mostly from L2; mma flops = 2 K of whole tiles
template <class Epilogue, int Columns>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
product_wgmma_kernel(const __grid_constant__ ProductMaps maps, FusedTensors t, TileOrder order, int K) {
    DYN_SHARED(floatX, shared);
    using Tiles = ProductTiles<Columns>;
    constexpr int stage = Tiles::left + Tiles::right;
    floatX* const tiles = first_tile(shared);
    auto& sums = *reinterpret_cast<typename Tiles::Sums*>(tiles + Tiles::stages * stage);
    auto& ring = *reinterpret_cast<typename Tiles::Stages*>(&sums + 1);
    if (threadIdx.x == 0) {
        ring.init(1);
        ptx::mbarrier_fence_init();
    }
    __syncthreads();
    if (threadIdx.x < kGroup) {
        ptx::registers_less<kProducerRegisters>();
        if (threadIdx.x == 0) produce_stages<Epilogue, Tiles, Columns>(tiles, ring, maps, order, K);
        return;
    }
    ptx::registers_more<kConsumerRegisters>();
    const int consumer = threadIdx.x / kGroup - 1;
    int n = 0;                                  // stages before this one
    for (unsigned i = blockIdx.x; i < order.count(); i += gridDim.x) {
        const TileOrder::Tile tile = order.at(i);
        float sum[Columns / 2];
        for (int k = 0; k < K; k += kBoxColumns, n++) {
            const floatX* const left = tiles + n % Tiles::stages * stage;
            ring.wait_full(n);
            ptx::wgmma_fence(sum);
            multiply<Epilogue::right>(sum, left + consumer * kOwn * kBoxColumns, left + Tiles::left, k > 0);
            ptx::wgmma_commit();
            ptx::wgmma_wait<1>();
            if (k > 0) ring.release(n - 1);
        }
        ptx::wgmma_wait<0>(sum);
        ring.release(n - 1);
        const int column = tile.column * (Columns / Epilogue::parts);
        finish<Epilogue>(sum, t, tile.row * kOwned + consumer * kOwn, column, sums[threadIdx.x / 32 - 4]);
        if constexpr (Epilogue::sums_columns)
            if (t.column_sums)
                store_column_sums<Columns>(t, sums, consumer, 2 * tile.row + consumer, column);
    }
}

// ---------------------------------------------------------------------------------------------------------
// launches

template <class Epilogue, int Columns> struct WgmmaProduct {
    static bool supports() { return runs_wgmma(ProductTiles<Columns>::bytes); }
    static TileOrder order_of(const FusedTensors& t) {
        return {div_up(t.N, kOwned), div_up(t.width, Columns / Epilogue::parts)};
    }
    static Floor floor(const FusedTensors& t, int K) {
        const TileOrder order = order_of(t);
        const double moved = double(Epilogue::moved) * t.N + (t.bias ? Epilogue::parts : 0);
        return {.bytes = (double(K) * (double(order.columns) * t.N +
                                       double(order.rows) * Epilogue::parts * t.width) +
                          moved * t.width) * sizeof(floatX) +
                         (t.column_sums ? 8. * order.rows * t.width : 0),
                .mma_flops = 2. * order.count() * kOwned * Columns * div_up(K, kBoxColumns) * kBoxColumns};
    }
    // A matrix is a head of so many channels, its rows those of a sequence; a gate's w are two sequences.
    static void run(const FusedTensors& t, int K) {
        constexpr bool forward = Epilogue::right == ptx::Major::K;
        constexpr int parts = Epilogue::parts;
        const HeadTensor left = {t.left, K, 1, t.N, 1, size_t(K)};
        const HeadTensor right = forward ? HeadTensor{t.right, K, 1, t.width, parts, size_t(K)}
                                         : HeadTensor{t.right, t.width, 1, K, 1, size_t(t.width)};
        const ProductMaps maps = {tensor_map(left, kOwned),
                                  tensor_map(right, forward ? Columns / parts : kBoxColumns)};
        const TileOrder order = order_of(t);
        if constexpr (sizeof(floatX) == 2)
            launch(product_wgmma_kernel<Epilogue, Columns>,
                   dim3(std::min(order.count(), unsigned(cuda_device().processors))), dim3(kWgmmaThreads),
                   ProductTiles<Columns>::bytes + kAlignBytes, floor(t, K), maps, t, order, K);
    }
};

// The op's two products: tiles of 256 columns, and of 192, which divide more sizes.
template <class Epilogue> static void add_products(std::vector<FusedProduct>& all, Op op) {
    using Wide = WgmmaProduct<Epilogue, 256>;
    using Narrow = WgmmaProduct<Epilogue, 192>;
    all.push_back({op, "wgmma_128x256", Wide::supports, Wide::run, Epilogue::sums_columns});
    all.push_back({op, "wgmma_128x192", Narrow::supports, Narrow::run, Epilogue::sums_columns});
}

}  // namespace cuda
}  // namespace PRECISION
