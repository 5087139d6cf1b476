// Instructions that C++ does not have, each a function. All inline PTX is here; its emulated twin is
// test/emulator/ptx.h. Layouts of fragments: PTX ISA 8.x, "Matrix Fragments for mma.m16n8k16".
#pragma once
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "llmc/base/numbers/fp8.h"

#ifdef CUDA_EMU
#include "test/emulator/ptx.h"
#else

namespace ptx {

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return unsigned(__cvta_generic_to_shared(p));
}

// 16 bytes at a time. cached: read through the read-only path, expected to be there already.
// streaming: evicted first.
__device__ __forceinline__ uint4 load16(const void* p) { return *static_cast<const uint4*>(p); }
__device__ __forceinline__ uint4 load16_cached(const void* p) { return __ldg(static_cast<const uint4*>(p)); }
__device__ __forceinline__ uint4 load16_streaming(const void* p) {
    return __ldcs(static_cast<const uint4*>(p));
}
__device__ __forceinline__ void store16(void* p, uint4 v) { *static_cast<uint4*>(p) = v; }
// To global memory, in one instruction: nvcc splits some stores of a uint4 in four.
__device__ __forceinline__ void store16_global(void* p, uint4 v) { __stwb(static_cast<uint4*>(p), v); }
__device__ __forceinline__ void store16_streaming(void* p, uint4 v) { __stcs(static_cast<uint4*>(p), v); }

// 8 bytes at a time.
__device__ __forceinline__ uint2 load8(const void* p) { return *static_cast<const uint2*>(p); }
__device__ __forceinline__ uint2 load8_cached(const void* p) { return __ldg(static_cast<const uint2*>(p)); }
__device__ __forceinline__ uint2 load8_streaming(const void* p) {
    return __ldcs(static_cast<const uint2*>(p));
}
__device__ __forceinline__ void store8(void* p, uint2 v) { *static_cast<uint2*>(p) = v; }
__device__ __forceinline__ void store8_streaming(void* p, uint2 v) { __stcs(static_cast<uint2*>(p), v); }

// One value of 2, 4 or 8 bytes.
template <class T> using Bits =
    std::conditional_t<sizeof(T) == 8, unsigned long long,
                       std::conditional_t<sizeof(T) == 4, unsigned, unsigned short>>;
template <class T> __device__ __forceinline__ T load_cached(const T* p) {
    return std::bit_cast<T>(__ldg(reinterpret_cast<const Bits<T>*>(p)));
}
template <class T> __device__ __forceinline__ T load_streaming(const T* p) {
    return std::bit_cast<T>(__ldcs(reinterpret_cast<const Bits<T>*>(p)));
}
template <class T> __device__ __forceinline__ void store_streaming(T* p, T v) {
    __stcs(reinterpret_cast<Bits<T>*>(p), std::bit_cast<Bits<T>>(v));
}

// d += a b for a (16, 16) row by row, b (16, 8) column by column, d (16, 8), over the 32 lanes of a warp.
// With g = lane / 4, t = lane % 4, and two bfloat16 in a register, the lower column in the lower half:
//     a[i]: row g + 8 (i % 2), columns 2t + 8 (i / 2) and the next
//     b[i]: rows 2t + 8 i and the next, column g
//     d[i]: row g + 8 (i / 2), column 2t + i % 2
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four matrices of (8, 8) bfloat16 from shared memory. Lane l gives the address of row l % 8 of matrix l / 8,
// 16 bytes aligned to 16. Register i of lane l gets columns 2 (l % 4) and the next of row l / 4 of matrix i;
// with trans, of the transposed matrix.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(row)) : "memory");
}

// 16 bytes from global to shared memory, on their way while the thread goes on; zeros where !valid (from is
// then not read). A commit closes a group of copies; wait<N> returns when all but this thread's last N groups
// have arrived. What other threads copied needs a __syncthreads after everyone's wait.
__device__ __forceinline__ void cp_async16(void* to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

// Hides where v comes from: the compiler keeps these 16 bytes, and not the floats it made of them before.
__device__ __forceinline__ void opaque(uint4& v) {
    asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

// 2^x, with a relative error of at most 2^-22. A result below 2^-126 is 0: exp2f takes three instructions
// more for results that small.
__device__ __forceinline__ float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// blockIdx.x, read again: what was computed from it before need not stay in registers.
__device__ __forceinline__ int block_again() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

// Two floats, rounded to nearest, as a fragment's register.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

// Two codes of FP8, that of low in the lower byte: fp8_code(). GPUs of compute capability 8.9 have it as an
// instruction; elder ones have no products of FP8.
__device__ __forceinline__ uint16_t pack_e4m3(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t packed;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return uint16_t(fp8_code<Fp8::E4M3>(low) | fp8_code<Fp8::E4M3>(high) << 8);
#endif
}
__device__ __forceinline__ uint16_t pack_e5m2(float low, float high) {
#if __CUDA_ARCH__ >= 890
    uint16_t packed;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
    return packed;
#else
    return uint16_t(fp8_code<Fp8::E5M2>(low) | fp8_code<Fp8::E5M2>(high) << 8);
#endif
}

}  // namespace ptx
#endif
