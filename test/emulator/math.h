// Vector types, arithmetic intrinsics and atomics of device code.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "test/emulator/access.h"

#define EMULATOR_VECTOR(name, bytes, ...) struct [[gnu::may_alias]] alignas(bytes) name { __VA_ARGS__; }
EMULATOR_VECTOR(int2, 8, int x, y);
EMULATOR_VECTOR(int4, 16, int x, y, z, w);
EMULATOR_VECTOR(uint2, 8, unsigned x, y);
EMULATOR_VECTOR(uint4, 16, unsigned x, y, z, w);
EMULATOR_VECTOR(float2, 8, float x, y);
EMULATOR_VECTOR(float4, 16, float x, y, z, w);
EMULATOR_VECTOR(double2, 16, double x, y);
#undef EMULATOR_VECTOR
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) {
    using C = std::common_type_t<A, B>;
    return C(a) < C(b) ? C(a) : C(b);
}
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) {
    using C = std::common_type_t<A, B>;
    return C(a) > C(b) ? C(a) : C(b);
}

using std::isfinite;
using std::isinf;
using std::isnan;
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
// one rounding each: never part of a fused multiply-add
[[gnu::noinline]] inline float __fmul_rn(float a, float b) { return a * b; }
[[gnu::noinline]] inline float __fadd_rn(float a, float b) { return a + b; }
[[gnu::noinline]] inline float __fsub_rn(float a, float b) { return a - b; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return uint64_t((unsigned __int128)a * b >> 64); }

// Loads and stores with a cache hint: counted.
template <class T> [[gnu::always_inline]] inline T __ldg(const T* p) {
    emulator::note_read(p, sizeof(T), true);
    return *p;
}
template <class T> [[gnu::always_inline]] inline T __ldcs(const T* p) {
    emulator::note_read(p, sizeof(T), false);
    return *p;
}
template <class T> [[gnu::always_inline]] inline T __ldcg(const T* p) { return __ldcs(p); }
template <class T> [[gnu::always_inline]] inline void __stcs(T* p, T v) {
    emulator::note_write(p, sizeof(T));
    *p = v;
}
template <class T> [[gnu::always_inline]] inline void __stcg(T* p, T v) { __stcs(p, v); }

namespace emulator {
// Fibers share an OS thread, blocks may not: so a real atomic.
template <class T, class F> [[gnu::always_inline]] inline T atomic_update(T* p, F f) {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    static_assert(sizeof(T) == sizeof(Bits), "an atomic of 4 or 8 bytes");
    Bits* bits = reinterpret_cast<Bits*>(p);
    Bits old = __atomic_load_n(bits, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(bits, &old, std::bit_cast<Bits>(T(f(std::bit_cast<T>(old)))), false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return std::bit_cast<T>(old);
}
}  // namespace emulator
#define EMULATOR_ATOMIC(name, expression)                                                                  \
    template <class T> [[gnu::always_inline]] inline T name(T* p, std::type_identity_t<T> v) {             \
        return emulator::atomic_update(p, [v](T old) { return expression; });                              \
    }
EMULATOR_ATOMIC(atomicAdd, old + v)
EMULATOR_ATOMIC(atomicSub, old - v)
EMULATOR_ATOMIC(atomicMax, old > v ? old : v)
EMULATOR_ATOMIC(atomicMin, old < v ? old : v)
EMULATOR_ATOMIC(atomicOr, old | v)
EMULATOR_ATOMIC(atomicAnd, old & v)
EMULATOR_ATOMIC(atomicExch, ((void)old, v))
EMULATOR_ATOMIC(atomicInc, old >= v ? T(0) : T(old + 1))
#undef EMULATOR_ATOMIC
template <class T> [[gnu::always_inline]] inline T atomicCAS(T* p, std::type_identity_t<T> expected,
                                                              std::type_identity_t<T> v) {
    return emulator::atomic_update(p, [=](T old) { return old == expected ? v : old; });
}
