// Sums in fixed order. Those over rows take two steps: a kernel leaves partial sums of its rows, then
// add_columns() adds these up.
#pragma once
#include "llmc/ops/cuda/kernel.h"
#include "llmc/ops/cuda/scratch.h"

namespace PRECISION {
namespace cuda {

// The partial sums of one to three outputs: row i of `partial` is (columns) for the first, then for the next.
struct ColumnSums {
    float* out[3];          // (columns) each, +=; null behind the last
    const float* partial;   // (rows, columns * outputs)
    int rows, columns;
};
void add_columns(const ColumnSums& s);

// out += column sums of rows of `columns` elements, `stride` apart. partial: group_sums(N, kBiasGroups,
// columns) bytes.
void add_rows(float* out, float* partial, const floatX* rows, int N, int columns, size_t stride);

// Adds 8 values over the 8 lanes of a warp with the same lane % 4: lane l returns the sum of value l / 4.
// Lanes trade halves of their values: 7 shuffles in place of 24 for 8 plain sums.
static __device__ __forceinline__ float sum_of_8(const float (&v)[8]) {
    const int lane = threadIdx.x % 32;
    float half[4], quarter[2];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const float keep = lane & 16 ? v[i + 4] : v[i], give = lane & 16 ? v[i] : v[i + 4];
        half[i] = keep + __shfl_xor_sync(kFullWarp, give, 16);
    }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
        const float keep = lane & 8 ? half[i + 2] : half[i], give = lane & 8 ? half[i] : half[i + 2];
        quarter[i] = keep + __shfl_xor_sync(kFullWarp, give, 8);
    }
    const float keep = lane & 4 ? quarter[1] : quarter[0], give = lane & 4 ? quarter[0] : quarter[1];
    return keep + __shfl_xor_sync(kFullWarp, give, 4);
}

// A pack kept as raw bits to save registers: 4, where a Pack of BF16 may take 8. keep() stops the compiler
// from also keeping values derived from the pack.
struct Held {
    uint4 bits;
    __device__ __forceinline__ Pack pack() const { return std::bit_cast<Pack>(bits); }
    __device__ __forceinline__ void keep() { ptx::opaque(bits); }
};

// use(load(i), i) for i = first, first + step, ... below end, in order; Ahead loads are under way at a time.
template <int Ahead, class I, class Load, class Use>
static __device__ __forceinline__ void for_loaded(I first, I end, I step, Load load, Use use) {
    for (I start = first; start < end; start += Ahead * step) {
        decltype(load(start)) values[Ahead];
        #pragma unroll
        for (int j = 0; j < Ahead; j++)
            if (start + j * step < end) values[j] = load(start + j * step);
        #pragma unroll
        for (int j = 0; j < Ahead; j++)
            if (start + j * step < end) use(values[j], start + j * step);
    }
}

template <int N>
static __device__ __forceinline__ void add_pack(float (&sum)[N], const PackOf<floatX, N>& p) {
    #pragma unroll
    for (int k = 0; k < N; k++) sum[k] += float(p[k]);
}

// apart: where the next four floats go, counted in floats.
template <int N>
static __device__ __forceinline__ void store_floats(float* to, const float (&from)[N],
                                                    int apart = PackF::size) {
    #pragma unroll
    for (int i = 0; i < N; i += PackF::size) {
        PackF p;
        #pragma unroll
        for (int k = 0; k < PackF::size; k++) p[k] = from[i + k];
        p.store(to + i / PackF::size * apart);
    }
}

// Over a block of Threads threads, a power of two, by a tree; every thread gets the result.
template <int Threads> static __device__ __forceinline__ double block_sum_of_doubles(double v) {
    SMEM(double[Threads], sums);
    sums[threadIdx.x] = v;
    #pragma unroll 1
    for (int half = Threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    __syncthreads();
    return sums[0];
}

}  // namespace cuda
}  // namespace PRECISION
