// Hopper's asynchronous instructions, each a function: mbarrier, TMA, wgmma. For code of sm_90a alone; the
// emulated twin is test/emulator/ptx_hopper.h. PTX ISA 8.x: "mbarrier", "cp.async.bulk.tensor",
// "Asynchronous Warpgroup Level Matrix Instructions".
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "llmc/ops/cuda/ptx.h"

namespace ptx {

// How an operand of wgmma lies in shared memory: its rows go along the sum (K), or along the result (MN).
enum class Major { K, MN };

}  // namespace ptx

#ifdef CUDA_EMU
#include "test/emulator/ptx_hopper.h"
#else

namespace ptx {

// ---------------------------------------------------------------------------------------------------------
// mbarrier: 8 bytes of shared memory. A phase is complete when all its arrivals and all bytes that it expects
// have come; phases count from 0, and a wait names the parity of one.

__device__ __forceinline__ void mbarrier_init(uint64_t* b, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :: "r"(shared_address(b)), "r"(arrivals) : "memory");
}
// After the last init: TMA may use the barriers.
__device__ __forceinline__ void mbarrier_fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(b)) : "memory");
}
// Arrives, and has the phase expect `bytes` of TMA.
__device__ __forceinline__ void mbarrier_arrive_expect(uint64_t* b, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(b)), "r"(bytes) : "memory");
}
// Returns when the phase of this parity is complete: of a new barrier, parity 1 is.
__device__ __forceinline__ void mbarrier_wait(uint64_t* b, unsigned parity) {
    unsigned complete = 0;
    while (!complete)
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n"
                     "}" : "=r"(complete) : "r"(shared_address(b)), "r"(parity) : "memory");
}

// ---------------------------------------------------------------------------------------------------------
// TMA: one thread starts the copy of a box of a tensor to shared memory; the box's bytes arrive at b. What
// lies outside of the tensor becomes zeros, and counts as bytes. c0 is the innermost coordinate.

__device__ __forceinline__ void tma_load_4d(void* to, const CUtensorMap* map, uint64_t* b, int c0, int c1,
                                            int c2, int c3) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];"
                 :: "r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(c0), "r"(c1), "r"(c2),
                    "r"(c3) : "memory");
}
__device__ __forceinline__ void tma_load_2d(void* to, const CUtensorMap* map, uint64_t* b, int c0, int c1) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 :: "r"(shared_address(to)), "l"(map), "r"(shared_address(b)), "r"(c0), "r"(c1) : "memory");
}

// ---------------------------------------------------------------------------------------------------------
// wgmma: d (64, N) += a (64, 16) b (16, N), over the four warps of a group. N is twice the length of d: 64,
// 128, 192 or 256. With g = lane / 4, t = lane % 4, warp w of the group has
//     d[i]: row 16 w + g + 8 (i / 2 % 2), column 8 (i / 4) + 2t + i % 2
//     a[i]: row 16 w + g + 8 (i % 2), columns 2t + 8 (i / 2) and the next, the lower in the lower half
//
// An operand in shared memory is a tile of rows of 64 elements, 128 bytes, as TMA writes them with a swizzle
// of 128 bytes: 16 bytes at column c of row r lie at c ^ r % 8. The tile begins at a multiple of 1,024 bytes.
//     Major::K     rows are those of a, or columns of b. stride_bytes: from eight rows to the next eight.
//     Major::MN    rows are the 16 of the sum. stride_bytes: the same. leading_bytes: from 64 columns to the
//                  next 64.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile, unsigned leading_bytes,
                                                     unsigned stride_bytes) {
    return (shared_address(tile) & 0x3ffff) >> 4 | uint64_t(leading_bytes >> 4) << 16 |
           uint64_t(stride_bytes >> 4) << 32 | uint64_t(1) << 62;
}

#define PTX_8(d, i)                                                                                       \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),           \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define PTX_32(d, i) PTX_8(d, i), PTX_8(d, i + 8), PTX_8(d, i + 16), PTX_8(d, i + 24)
#define PTX_64(d) PTX_32(d, 0), PTX_32(d, 32)
#define PTX_96(d) PTX_64(d), PTX_32(d, 64)
#define PTX_128(d) PTX_96(d), PTX_32(d, 96)
#define PTX_NAMES_32                                                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                              \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_NAMES_64                                                                                      \
    PTX_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "     \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_NAMES_96                                                                                      \
    PTX_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "     \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PTX_NAMES_128                                                                                     \
    PTX_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "     \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "    \
    "%126, %127"
// N, the names and operands of d; the names of the flag that d counts, of a and of b, and what says how they
// lie; the other operands
#define PTX_WGMMA(N, NAMES, D, FLAG, OPERANDS, ...)                                                       \
    asm volatile("{\n"                                                                                    \
                 ".reg .pred p;\n"                                                                        \
                 "setp.ne.b32 p, " FLAG ", 0;\n"                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 {" NAMES "}, " OPERANDS ";\n"   \
                 "}" : D : __VA_ARGS__)

// Starts the product. a, b: descriptors. Where !accumulate, d = a b.
template <Major A, Major B, int R>
__device__ __forceinline__ void wgmma(float (&d)[R], uint64_t a, uint64_t b, bool accumulate) {
    static_assert(R == 32 || R == 64 || R == 96 || R == 128);
#define PTX_IN "r"(int(accumulate)), "l"(a), "l"(b), "n"(int(A == Major::MN)), "n"(int(B == Major::MN))
    if constexpr (R == 32)
        PTX_WGMMA("64", PTX_NAMES_32, PTX_32(d, 0), "%32", "%33, %34, p, 1, 1, %35, %36", PTX_IN);
    if constexpr (R == 64)
        PTX_WGMMA("128", PTX_NAMES_64, PTX_64(d), "%64", "%65, %66, p, 1, 1, %67, %68", PTX_IN);
    if constexpr (R == 96)
        PTX_WGMMA("192", PTX_NAMES_96, PTX_96(d), "%96", "%97, %98, p, 1, 1, %99, %100", PTX_IN);
    if constexpr (R == 128)
        PTX_WGMMA("256", PTX_NAMES_128, PTX_128(d), "%128", "%129, %130, p, 1, 1, %131, %132", PTX_IN);
#undef PTX_IN
}
// The same with a in registers, which wgmma reads until a wait.
template <Major B, int R>
__device__ __forceinline__ void wgmma(float (&d)[R], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    static_assert(R == 32 || R == 64 || R == 96 || R == 128);
#define PTX_IN                                                                                            \
    "r"(int(accumulate)), "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int(B == Major::MN))
    if constexpr (R == 32)
        PTX_WGMMA("64", PTX_NAMES_32, PTX_32(d, 0), "%32", "{%33, %34, %35, %36}, %37, p, 1, 1, %38", PTX_IN);
    if constexpr (R == 64)
        PTX_WGMMA("128", PTX_NAMES_64, PTX_64(d), "%64", "{%65, %66, %67, %68}, %69, p, 1, 1, %70", PTX_IN);
    if constexpr (R == 96)
        PTX_WGMMA("192", PTX_NAMES_96, PTX_96(d), "%96", "{%97, %98, %99, %100}, %101, p, 1, 1, %102",
                  PTX_IN);
    if constexpr (R == 128)
        PTX_WGMMA("256", PTX_NAMES_128, PTX_128(d), "%128", "{%129, %130, %131, %132}, %133, p, 1, 1, %134",
                  PTX_IN);
#undef PTX_IN
}
#undef PTX_8
#undef PTX_32
#undef PTX_64
#undef PTX_96
#undef PTX_128
#undef PTX_NAMES_32
#undef PTX_NAMES_64
#undef PTX_NAMES_96
#undef PTX_NAMES_128
#undef PTX_WGMMA

// The compiler moves no access of d, or of a, over this.
template <int R> __device__ __forceinline__ void tie(float (&d)[R]) {
    #pragma unroll
    for (int i = 0; i < R; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template <int N> __device__ __forceinline__ void tie(uint32_t (&a)[N][4]) {
    #pragma unroll
    for (int i = 0; i < 4 * N; i++) asm volatile("" : "+r"(a[i / 4][i % 4]) :: "memory");
}
// Before the first wgmma, and wherever other instructions wrote d, or a's registers, since the last. Names
// all of these.
template <class... Registers> __device__ __forceinline__ void wgmma_fence(Registers&... registers) {
    (tie(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Closes a group of products.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Returns when all but the last N groups are complete. d: the sums that are complete now.
template <int N, int... R> __device__ __forceinline__ void wgmma_wait(float (&...d)[R]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    (tie(d), ...);
}
// Between this thread's accesses to shared memory and those of wgmma and TMA that start after the next
// barrier: what it stored is seen, what it read may be written over.
__device__ __forceinline__ void fence_proxy_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---------------------------------------------------------------------------------------------------------
// groups of warps

// All warps of a group of 128 threads: registers of a thread from here on, a multiple of 8.
template <int N> __device__ __forceinline__ void registers_less() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}
template <int N> __device__ __forceinline__ void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}
// Named barrier Id, 1 to 15, of Threads threads, those that arrive and those that wait. The numbers are in
// the instructions: with one in a register ptxas reserves all 16 barriers.
template <int Id, int Threads> __device__ __forceinline__ void barrier_sync() {
    asm volatile("bar.sync %0, %1;" :: "n"(Id), "n"(Threads) : "memory");
}
template <int Id, int Threads> __device__ __forceinline__ void barrier_arrive() {
    asm volatile("bar.arrive %0, %1;" :: "n"(Id), "n"(Threads) : "memory");
}

}  // namespace ptx
#endif
