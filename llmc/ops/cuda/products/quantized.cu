// FP8 codes of matrices. A scale needs the largest element of the whole matrix, so there are two passes:
// largest() leaves a maximum for each of kFp8Parts runs, and every block of quantize() reads these again.
// Codes are those of fp8_code(), as on the CPU.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/numbers/fp8.h"
#include "llmc/ops/cuda/sums.h"

namespace PRECISION {
namespace cuda {

static constexpr int kFp8Threads = 256;

// A block takes a run of `run` packs.
// FLOOR bytes = count sizeof(floatX) + 4 parts
__global__ void __launch_bounds__(kFp8Threads)
largest_kernel(float* amaxes, const floatX* x, size_t packs, size_t run) {
    const size_t first = blockIdx.x * run, end = first + run < packs ? first + run : packs;
    Amax most;
    for_loaded<8>(first + threadIdx.x, end, size_t(kFp8Threads),
                  [&](size_t i) { return Pack::load_streaming(x + i * Pack::size); },
                  [&](const Pack& p, size_t) { most.see(p); });
    const unsigned bits = most.of_block();
    if (threadIdx.x == 0) amaxes[blockIdx.x] = std::bit_cast<float>(bits);
}

void largest(float* amaxes, const floatX* x, size_t count) {
    if (walked(largest_cost, count)) return;
    CHECK(count % Pack::size == 0, "largest: {} elements, expected a multiple of {}", count, Pack::size);
    const size_t packs = count / Pack::size;
    launch(largest_kernel, dim3(kFp8Parts), dim3(kFp8Threads), 0,
           {.bytes = double(count) * sizeof(floatX) + 4. * kFp8Parts}, amaxes, x, packs,
           div_up(packs, kFp8Parts));
}

// A block takes a tensor.
// FLOOR bytes = 4 count (parts + 1), and 4 count with inverses
__global__ void __launch_bounds__(kFp8Threads)
merge_amaxes_kernel(float* to, float* inverses, AmaxSets from) {
    const int i = int(blockIdx.x);
    const float* const own = from.amaxes + size_t(i) * size_t(from.step);
    Amax most;
    for (int k = int(threadIdx.x); k < from.parts; k += kFp8Threads)
        most.see(load_cached(own + size_t(k) * size_t(from.part_step)));
    const float amax = std::bit_cast<float>(most.of_block());
    if (threadIdx.x > 0) return;
    to[i] = amax;
    if (inverses) inverses[i] = fp8_inverse(fp8_scale(Fp8::E4M3, amax));
}

void merge_amaxes(float* to, float* inverses, const AmaxSets& from) {
    if (walked(merge_amaxes_cost, from, inverses != nullptr)) return;
    if (from.count == 0) return;
    launch(merge_amaxes_kernel, dim3(unsigned(from.count)), dim3(kFp8Threads), 0,
           {.bytes = 4. * from.count * (from.parts + (inverses ? 2 : 1))}, to, inverses, from);
}

// ---------------------------------------------------------------------------------------------------------
// codes

struct Quantized {
    uint8_t *codes, *transposed;        // transposed: quantize_both_kernel
    float* inverse;
    const floatX* x;
    const float* amaxes;
    int parts, rows, columns;
};

// The scale, equal in all blocks; the first writes its inverse.
template <Fp8 F> static __device__ __forceinline__ float scale_of(const Quantized& q) {
    Amax most;
    for (int i = threadIdx.x; i < q.parts; i += kFp8Threads) most.see(load_cached(q.amaxes + i));
    const float scale = fp8_scale(F, std::bit_cast<float>(most.of_block()));
    if (blockIdx.x == 0 && threadIdx.x == 0) *q.inverse = fp8_inverse(scale);
    return scale;
}

// Of a pack of x, in the words of to.
static constexpr int kWords = Pack::size / 4;
template <Fp8 F>
static __device__ __forceinline__ void code_pack(uint32_t (&to)[kWords], const floatX* x, float scale) {
    const Pack p = Pack::load_streaming(x);
    #pragma unroll
    for (int w = 0; w < kWords; w++) {
        const auto two = [&](int i) {
            const float low = p.as_float(4 * w + i) * scale, high = p.as_float(4 * w + i + 1) * scale;
            return uint32_t(F == Fp8::E4M3 ? ptx::pack_e4m3(low, high) : ptx::pack_e5m2(low, high));
        };
        to[w] = two(0) | two(2) << 16;
    }
}
static __device__ __forceinline__ void store_words(uint8_t* to, const uint32_t (&from)[kWords]) {
    if constexpr (kWords == 2) ptx::store8(to, uint2{from[0], from[1]});
    else *reinterpret_cast<uint32_t*>(to) = from[0];
}

// FLOOR bytes = rows columns (sizeof(floatX) + 1) + 4 (parts + 1)
template <Fp8 F> __global__ void __launch_bounds__(kFp8Threads) quantize_kernel(Quantized q) {
    const float scale = scale_of<F>(q);
    const size_t all = size_t(q.rows) * size_t(q.columns);
    const size_t step = size_t(gridDim.x) * kFp8Threads * Pack::size;
    for (size_t i = (size_t(blockIdx.x) * kFp8Threads + threadIdx.x) * Pack::size; i < all; i += step) {
        uint32_t words[kWords];
        code_pack<F>(words, q.x + i, scale);
        store_words(q.codes + i, words);
    }
}

// A block takes tiles of 64 x 64. A thread codes packs of rows; through shared memory it then has 16 codes of
// a column.
static constexpr int kTile = 64, kColumn = 16;
static constexpr int kTileRow = kTile / 4 + 1;          // words; an odd number, so that banks differ
static constexpr int kTilePacks = kTile / Pack::size;       // of a row

// A column of a tile, behind the barrier after its rows; of a matrix (rows, columns).
static __device__ __forceinline__ void store_column(uint8_t* transposed, const uint32_t* tile, int row0,
                                                    int column0, int rows, int columns) {
    const int c = threadIdx.x / (kTile / kColumn), r = threadIdx.x % (kTile / kColumn) * kColumn;
    if (column0 + c >= columns || row0 + r >= rows) return;
    PackOf<uint8_t> codes;
    #pragma unroll
    for (int k = 0; k < kColumn; k++) codes[k] = uint8_t(tile[(r + k) * kTileRow + c / 4] >> c % 4 * 8);
    codes.store(transposed + size_t(column0 + c) * size_t(rows) + size_t(row0 + r));
}

// FLOOR bytes = rows columns (sizeof(floatX) + 2) + 4 (parts + 1)
template <Fp8 F> __global__ void __launch_bounds__(kFp8Threads) quantize_both_kernel(Quantized q) {
    SMEM(uint32_t[kTile * kTileRow], tile);
    const float scale = scale_of<F>(q);
    const int across = div_up(q.columns, kTile), tiles = across * div_up(q.rows, kTile);
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row0 = t / across * kTile, column0 = t % across * kTile;
        __syncthreads();                    // the tile before is read
        const int column = threadIdx.x % kTilePacks * Pack::size;
        for (int row = threadIdx.x / kTilePacks; row < kTile; row += kFp8Threads / kTilePacks) {
            if (row0 + row >= q.rows || column0 + column >= q.columns) continue;
            const size_t at = size_t(row0 + row) * size_t(q.columns) + size_t(column0 + column);
            uint32_t words[kWords];
            code_pack<F>(words, q.x + at, scale);
            store_words(q.codes + at, words);
            #pragma unroll
            for (int w = 0; w < kWords; w++) tile[row * kTileRow + column / 4 + w] = words[w];
        }
        __syncthreads();
        store_column(q.transposed, tile, row0, column0, q.rows, q.columns);
    }
}

// A block takes tiles of 64 x 64; a thread has 16 codes of a row, then of a column.
// FLOOR bytes = 2 rows columns
__global__ void __launch_bounds__(kFp8Threads)
transpose_codes_kernel(uint8_t* to, const uint8_t* from, int rows, int columns) {
    SMEM(uint32_t[kTile * kTileRow], tile);
    const int across = div_up(columns, kTile), tiles = across * div_up(rows, kTile);
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row0 = t / across * kTile, column0 = t % across * kTile;
        __syncthreads();                    // the tile before is read
        const int row = threadIdx.x / (kTile / kColumn), column = threadIdx.x % (kTile / kColumn) * kColumn;
        if (row0 + row < rows && column0 + column < columns) {
            const auto codes = PackOf<uint8_t>::load_streaming(
                from + size_t(row0 + row) * size_t(columns) + size_t(column0 + column));
            const auto words = std::bit_cast<std::array<uint32_t, kColumn / 4>>(codes);
            #pragma unroll
            for (int w = 0; w < kColumn / 4; w++) tile[row * kTileRow + column / 4 + w] = words[w];
        }
        __syncthreads();
        store_column(to, tile, row0, column0, rows, columns);
    }
}

// Enough blocks to fill any GPU; each reads the amaxes once.
static constexpr size_t kMostBlocks = 1056;

void quantize(const Fp8Matrix& to, uint8_t* transposed, const floatX* x, const float* amaxes, int parts,
              int rows, int columns) {
    if (walked(quantize_cost, parts, rows, columns, transposed != nullptr)) return;
    const size_t count = size_t(rows) * size_t(columns);
    const bool whole = rows % kFp8Unit == 0 && columns % kFp8Unit == 0;
    CHECK(transposed ? whole : count % kFp8Unit == 0,
          "quantize: ({}, {}), expected sizes that are multiples of {}", rows, columns, kFp8Unit);
    const Quantized q = {.codes = to.codes, .transposed = transposed, .inverse = to.inverse, .x = x,
                         .amaxes = amaxes, .parts = parts, .rows = rows, .columns = columns};
    if (count == 0) return;
    const size_t tiles = size_t(div_up(rows, kTile)) * size_t(div_up(columns, kTile));
    const size_t blocks = std::min(kMostBlocks, transposed ? tiles : div_up(count / Pack::size, kFp8Threads));
    const bool e4m3 = to.format == Fp8::E4M3;
    auto* const rows_only = e4m3 ? quantize_kernel<Fp8::E4M3> : quantize_kernel<Fp8::E5M2>;
    auto* const both = e4m3 ? quantize_both_kernel<Fp8::E4M3> : quantize_both_kernel<Fp8::E5M2>;
    launch(transposed ? both : rows_only, dim3(unsigned(blocks)), dim3(kFp8Threads), 0,
           {.bytes = double(count) * double(sizeof(floatX) + (transposed ? 2 : 1)) + 4. * (parts + 1)}, q);
}

void transpose_codes(uint8_t* to, const uint8_t* from, int rows, int columns) {
    if (walked(transpose_codes_cost, rows, columns)) return;
    CHECK(rows % kFp8Unit == 0 && columns % kFp8Unit == 0,
          "transpose_codes: ({}, {}), expected multiples of {}", rows, columns, kFp8Unit);
    const size_t tiles = size_t(div_up(rows, kTile)) * size_t(div_up(columns, kTile));
    if (tiles == 0) return;
    launch(transpose_codes_kernel, dim3(unsigned(std::min(kMostBlocks, tiles))), dim3(kFp8Threads), 0,
           {.bytes = 2. * rows * columns}, to, from, rows, columns);
}

}  // namespace cuda
}  // namespace PRECISION
