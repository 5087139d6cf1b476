// LayerNorm, forward:  y = (x - mean) rstd w + b,  mean and rstd = 1 / sqrt(variance + eps) over a row of C
//
// A few operations for every number read: memory traffic decides. The least traffic reads x and writes y
// once, 4 N C bytes, in whole sectors of 32 bytes. A warp's 32 lanes access memory together, and memory moves
// every sector with a touched address.
#include "dev/cuda/graded.h"
#include "llmc/ops/cuda/kernel.h"

namespace graded {

using namespace bf16::cuda;

static constexpr float kEpsilon = 1e-5f;
static Floor floor_of(const Rows& t) { return {.bytes = 4. * t.N * t.C + 4. * t.C}; }

// ---------------------------------------------------------------------------------------------------------
// 1. A thread takes a row, as a loop on a CPU would. But lanes of a warp are neighbours in *rows*: their 32
// numbers lie C apart, in 32 different sectors, for 2 wanted bytes each. The row is read three times, and
// with N threads most of the GPU is idle.
__global__ void layernorm_row_per_thread(Rows t) {
    const int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= t.N) return;
    const bfloat16* row = t.x + size_t(n) * t.C;
    float mean = 0, variance = 0;
    for (int c = 0; c < t.C; c++) mean += float(row[c]);
    mean /= t.C;
    for (int c = 0; c < t.C; c++) variance += (float(row[c]) - mean) * (float(row[c]) - mean);
    const float rstd = 1 / sqrtf(variance / t.C + kEpsilon);
    for (int c = 0; c < t.C; c++)
        t.y[size_t(n) * t.C + c] = bfloat16((float(row[c]) - mean) * rstd * float(t.w[c]) + float(t.b[c]));
}

// ---------------------------------------------------------------------------------------------------------
// 2. A block takes a row, and its threads are neighbours in columns: a warp reads 64 adjacent bytes, two
// whole sectors. The price: threads add up their partial sums in shared memory, with half as many adding
// threads after each barrier. Most threads wait most of the time.
static __device__ __forceinline__ float sum_by_halves(float v, float* values) {
    values[threadIdx.x] = v;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < half) values[threadIdx.x] += values[threadIdx.x + half];
    }
    __syncthreads();
    const float sum = values[0];
    __syncthreads();                    // before the next sum writes there
    return sum;
}

__global__ void layernorm_row_per_block(Rows t) {
    DYN_SHARED(float, values);          // (threads)
    const size_t row = size_t(blockIdx.x) * t.C;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < t.C; c += blockDim.x) sum += float(t.x[row + c]);
    const float mean = sum_by_halves(sum, values) / t.C;
    for (int c = threadIdx.x; c < t.C; c += blockDim.x)
        squares += (float(t.x[row + c]) - mean) * (float(t.x[row + c]) - mean);
    const float rstd = 1 / sqrtf(sum_by_halves(squares, values) / t.C + kEpsilon);
    for (int c = threadIdx.x; c < t.C; c += blockDim.x)
        t.y[row + c] = bfloat16((float(t.x[row + c]) - mean) * rstd * float(t.w[c]) + float(t.b[c]));
}

// ---------------------------------------------------------------------------------------------------------
// 3. A warp takes a row: its lanes read each other's registers (warp_sum: after five exchanges every lane has
// the sum), with no shared memory and no barrier. A block is eight warps with nothing in common.
__global__ void layernorm_row_per_warp(Rows t) {
    const int n = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= t.N) return;
    const size_t row = size_t(n) * t.C;
    float sum = 0, squares = 0;
    for (int c = lane; c < t.C; c += 32) sum += float(t.x[row + c]);
    const float mean = warp_sum(sum) / t.C;
    for (int c = lane; c < t.C; c += 32)
        squares += (float(t.x[row + c]) - mean) * (float(t.x[row + c]) - mean);
    const float rstd = 1 / sqrtf(warp_sum(squares) / t.C + kEpsilon);
    for (int c = lane; c < t.C; c += 32)
        t.y[row + c] = bfloat16((float(t.x[row + c]) - mean) * rstd * float(t.w[c]) + float(t.b[c]));
}

// ---------------------------------------------------------------------------------------------------------
// 4. As version 3, with 16 bytes in each access (Pack: eight numbers), the widest access: an eighth of the
// instructions, and 512 bytes of a warp in flight, which hide memory's latency. The row waits in shared
// memory for the second and third pass: global memory is read once. Every lane reads back its own values,
// without a barrier. Every row uses w and b: load_cached keeps both in the cache, while x and y leave first.
__global__ void layernorm_packs(Rows t) {
    DYN_SHARED(bfloat16, rows);         // (warps, C)
    const int warp = threadIdx.x / 32, n = blockIdx.x * (blockDim.x / 32) + warp;
    if (n >= t.N) return;
    const int first = threadIdx.x % 32 * Pack::size, step = 32 * Pack::size;
    bfloat16* row = rows + warp * t.C;
    float sum = 0, squares = 0;
    for (int c = first; c < t.C; c += step) {
        const Pack v = Pack::load_streaming(t.x + size_t(n) * t.C + c);
        for (int i = 0; i < Pack::size; i++) sum += float(v[i]);
        v.store(row + c);
    }
    const float mean = warp_sum(sum) / t.C;
    for (int c = first; c < t.C; c += step) {
        const Pack v = Pack::load(row + c);
        for (int i = 0; i < Pack::size; i++) squares += (float(v[i]) - mean) * (float(v[i]) - mean);
    }
    const float rstd = 1 / sqrtf(warp_sum(squares) / t.C + kEpsilon);
    for (int c = first; c < t.C; c += step) {
        Pack v = Pack::load(row + c);
        const Pack gain = Pack::load_cached(t.w + c), shift = Pack::load_cached(t.b + c);
        for (int i = 0; i < Pack::size; i++)
            v[i] = bfloat16((float(v[i]) - mean) * rstd * float(gain[i]) + float(shift[i]));
        v.store_streaming(t.y + size_t(n) * t.C + c);
    }
}

// llmc/ops/cuda/layernorm.cu goes further: the residual addition before the norm in the same pass, several
// packs of a lane under way at once, rows of any length.

// ---------------------------------------------------------------------------------------------------------

std::span<const Version<Rows>> layernorm_versions() {
    static const Version<Rows> versions[] = {
        {"a thread per row", [](const Rows& t) {
             launch(layernorm_row_per_thread, dim3(div_up(t.N, 128)), dim3(128), 0, floor_of(t), t);
         }},
        {"a block per row", [](const Rows& t) {
             launch(layernorm_row_per_block, dim3(t.N), dim3(256), 256 * sizeof(float), floor_of(t), t);
         }},
        {"a warp per row", [](const Rows& t) {
             launch(layernorm_row_per_warp, dim3(div_up(t.N, 8)), dim3(256), 0, floor_of(t), t);
         }},
        {"16 bytes at a time, once", [](const Rows& t) {
             const size_t rows = 8 * size_t(t.C) * sizeof(bfloat16);
             launch(layernorm_packs, dim3(div_up(t.N, 8)), dim3(256), rows, floor_of(t), t);
         }},
    };
    return versions;
}

}  // namespace graded
