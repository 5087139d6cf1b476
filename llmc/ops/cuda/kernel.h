// Room ops/cuda: the operations on GPUs. A file has device functions, then kernels, then launchers.
// Called through ops:: by comm, model and train/. The room knows no rank and no model.
//
// Included by every kernel file: shared memory, 16-byte packs, reductions, launch().
//
// The same sources are compiled by nvcc and, with -DCUDA_EMU, by g++ against test/emulator. So: kernels start
// only by launch(), shared memory is declared only by DYN_SHARED and SMEM, PTX is only in ptx.h, and device
// functions in headers say __forceinline__. A "FLOOR" line above a kernel states the Floor of its launches
// (runtime.h).
#pragma once
#include <cmath>
#include <cstdint>

#include "llmc/base/check.h"
#include "llmc/base/numbers/dtype.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/cuda/ptx.h"
#include "llmc/ops/ops.h"

// DYN_SHARED(float, rows);          rows: float*, the dynamic shared memory of the launch, aligned to 128
// SMEM(float[32][33], tile);        tile: a shared object of that type
#ifndef CUDA_EMU
#define DYN_SHARED(T, name)                                               \
    extern __shared__ __align__(128) unsigned char dynamic_shared_[];     \
    T* const name = reinterpret_cast<T*>(dynamic_shared_)
#define SMEM(T, name) __shared__ __align__(16) std::type_identity_t<T> name
#endif

inline namespace gpu {

inline constexpr unsigned kFullWarp = 0xffffffffu;
inline constexpr float kLog2e = 1.4426950408889634f;         // exp(x) = exp2(x * kLog2e)
inline constexpr float kLowest = -3.4028234663852886e38f;    // of finite floats

template <class I> HOST_DEVICE constexpr I div_up(I a, std::type_identity_t<I> b) { return (a + b - 1) / b; }

}  // namespace gpu

namespace PRECISION {
namespace cuda {

inline constexpr Target kThisDevice = {.backend = Target::Cuda, .threads = 1};

// N values of T in one access of 16 bytes, the widest, or of 8. Addresses are multiples of the access.
//     load             global or shared memory
//     load_cached      for data read by many blocks, like weights of a norm; traffic counters of tests count
//                      each byte once per launch
//     load_streaming   for data read once, like activations: evicted first
template <class T, int N = 16 / sizeof(T)> struct alignas(N * sizeof(T)) PackOf {
    static constexpr int size = N;
    static constexpr bool wide = N * sizeof(T) == 16;
    static_assert(wide || N * sizeof(T) == 8);
    T values[size];

    __device__ __forceinline__ T& operator[](int i) { return values[i]; }
    __device__ __forceinline__ const T& operator[](int i) const { return values[i]; }
    // float(values[i]), where T is BF16 by one instruction: the upper value of a word needs no shift.
    __device__ __forceinline__ float as_float(int i) const {
        if constexpr (sizeof(T) == 2) {
            struct Words { uint32_t word[size / 2]; };
            const uint32_t word = std::bit_cast<Words>(*this).word[i / 2];
            return std::bit_cast<float>(i % 2 ? word & 0xffff0000 : word << 16);
        } else {
            return float(values[i]);
        }
    }

    static __device__ __forceinline__ PackOf load(const T* p) {
        if constexpr (wide) return std::bit_cast<PackOf>(ptx::load16(p));
        else return std::bit_cast<PackOf>(ptx::load8(p));
    }
    static __device__ __forceinline__ PackOf load_cached(const T* p) {
        if constexpr (wide) return std::bit_cast<PackOf>(ptx::load16_cached(p));
        else return std::bit_cast<PackOf>(ptx::load8_cached(p));
    }
    static __device__ __forceinline__ PackOf load_streaming(const T* p) {
        if constexpr (wide) return std::bit_cast<PackOf>(ptx::load16_streaming(p));
        else return std::bit_cast<PackOf>(ptx::load8_streaming(p));
    }
    __device__ __forceinline__ void store(T* p) const {
        if constexpr (wide) ptx::store16(p, std::bit_cast<uint4>(*this));
        else ptx::store8(p, std::bit_cast<uint2>(*this));
    }
    // REQUIRES: p in global memory
    __device__ __forceinline__ void store_global(T* p) const requires wide {
        ptx::store16_global(p, std::bit_cast<uint4>(*this));
    }
    __device__ __forceinline__ void store_streaming(T* p) const {
        if constexpr (wide) ptx::store16_streaming(p, std::bit_cast<uint4>(*this));
        else ptx::store8_streaming(p, std::bit_cast<uint2>(*this));
    }
    static __device__ __forceinline__ PackOf filled(T value) {
        PackOf pack;
        #pragma unroll
        for (int i = 0; i < size; i++) pack[i] = value;
        return pack;
    }
};
using Pack = PackOf<floatX>;
using PackF = PackOf<float>;
// fatal() where `columns` do not divide into packs. what: "layernorm: C", for the message.
inline void check_packs(const char* what, int columns) {
    CHECK(columns % Pack::size == 0, "{} = {} is no multiple of {}", what, columns, Pack::size);
}
// Four values: for kernels that mix floatX and float tensors, so that a warp's accesses to both are
// contiguous.
using Four = PackOf<floatX, 4>;

// One value each; counters count load_cached() once per launch here too.
template <class T> __device__ __forceinline__ T load_streaming(const T* p) { return ptx::load_streaming(p); }
template <class T> __device__ __forceinline__ T load_cached(const T* p) { return ptx::load_cached(p); }
template <class T> __device__ __forceinline__ void store_streaming(T* p, T v) { ptx::store_streaming(p, v); }

// Over the 32 lanes; every lane calls and gets the result. A butterfly: the order is fixed.
__device__ __forceinline__ float warp_sum(float v) {
    #pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(kFullWarp, v, lanes);
    return v;
}

// Over the block; every thread calls and gets the result. Warp by warp, in order.
// REQUIRES: blockDim.x a multiple of 32, one-dimensional
__device__ __forceinline__ float block_sum(float v) {
    SMEM(float[32], sums);
    const float of_warp = warp_sum(v);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = of_warp;
    __syncthreads();
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; warp++) total += sums[warp];
    __syncthreads();                     // sums may be written again
    return total;
}

// The largest magnitude seen, as bits: their order is that of the values, with NaN last.
struct Amax {
    unsigned bits = 0;
    __device__ __forceinline__ void see(float x) {
        const unsigned magnitude = std::bit_cast<unsigned>(x) & 0x7fffffff;
        bits = magnitude > bits ? magnitude : bits;
    }
    __device__ __forceinline__ void see(const Pack& p) {
        #pragma unroll
        for (int k = 0; k < Pack::size; k++) see(p.as_float(k));
    }
    // Over the block; every thread calls and gets the result.
    // REQUIRES: blockDim.x a multiple of 32, one-dimensional; called once
    __device__ __forceinline__ unsigned of_block() const {
        SMEM(unsigned[32], of_warps);
        const unsigned most = __reduce_max_sync(kFullWarp, bits);
        if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = most;
        __syncthreads();
        unsigned total = 0;
        for (unsigned warp = 0; warp < blockDim.x / 32; warp++)
            total = of_warps[warp] > total ? of_warps[warp] : total;
        return total;
    }
};
// Raises an amax to that of a block, or of a warp: one thread calls. A maximum has no order. Floors leave
// amaxes out: 1 KB at most.
// REQUIRES: clear_amaxes() before the launch
__device__ __forceinline__ void raise_amax(float* amaxes, unsigned bits) {
    atomicMax(reinterpret_cast<unsigned*>(amaxes) + blockIdx.x % kFp8Parts, bits);
}
// Every thread of the block calls, once.
__device__ __forceinline__ void raise_amax_of_block(float* amaxes, const Amax& most) {
    const unsigned bits = most.of_block();
    if (threadIdx.x == 0) raise_amax(amaxes, bits);
}
inline void clear_amaxes(float* amaxes) {
    if (amaxes) CUDA_CHECK(cudaMemsetAsync(amaxes, 0, kFp8Parts * sizeof(float), cuda_device().compute));
}

}  // namespace cuda
}  // namespace PRECISION
