// Vectors of the machine's width, loads and stores with conversion from and to bfloat16, and sums in a fixed
// order.
//
// A sum over a row is taken in lanes: element i goes to lane i % (4 W), and a tree adds the lanes. The sum
// depends on the row alone, never on addresses, threads, or the compiler's unrolling.
#pragma once
#include <immintrin.h>

#include <array>
#include <cstring>
#include <type_traits>

#include "llmc/base/numbers/dtype.h"

inline namespace numbers {

namespace simd {

#if defined(__AVX512F__)
inline constexpr size_t kVectorBytes = 64;
#elif defined(__AVX__)
inline constexpr size_t kVectorBytes = 32;
#else
inline constexpr size_t kVectorBytes = 16;
#endif

template <class Real, size_t bytes> struct OfBytes { typedef Real type [[gnu::vector_size(bytes)]]; };
template <class Real> struct VectorOf { typedef Real type [[gnu::vector_size(kVectorBytes)]]; };
template <class Real> using Vector = typename VectorOf<Real>::type;
template <class Real> inline constexpr int width = int(kVectorBytes / sizeof(Real));

using Bits = VectorOf<uint32_t>::type;
typedef uint16_t Halves [[gnu::vector_size(kVectorBytes / 2)]];

[[gnu::always_inline]] inline Vector<float> load(const float* p) {
    Vector<float> v;
    memcpy(&v, p, sizeof v);
    return v;
}
[[gnu::always_inline]] inline Vector<double> load(const double* p) {
    Vector<double> v;
    memcpy(&v, p, sizeof v);
    return v;
}
#if defined(__AVX512F__)        // GCC 12 makes five instructions of the general form
[[gnu::always_inline]] inline Vector<float> load(const bfloat16* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return std::bit_cast<Vector<float>>(std::bit_cast<Bits>(_mm512_maskz_cvtepu16_epi32(0xffff, halves))
                                        << 16);
}
#else
[[gnu::always_inline]] inline Vector<float> load(const bfloat16* p) {
    Halves h;
    memcpy(&h, p, sizeof h);
    return std::bit_cast<Vector<float>>(__builtin_convertvector(h, Bits) << 16);
}
#endif
[[gnu::always_inline]] inline void store(float* p, Vector<float> v) { memcpy(p, &v, sizeof v); }
[[gnu::always_inline]] inline void store(double* p, Vector<double> v) { memcpy(p, &v, sizeof v); }
[[gnu::always_inline]] inline Halves rounded(Vector<float> v) {
    const Bits u = std::bit_cast<Bits>(v);
    const Bits nearest = (u + 0x7fff + (u >> 16 & 1)) >> 16, quiet = u >> 16 | 0x40;
    return __builtin_convertvector((u & 0x7fffffff) > 0x7f800000 ? quiet : nearest, Halves);
}
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
[[gnu::noinline]] inline Halves rounded_with_subnormals(Vector<float> v) { return rounded(v); }
// The instruction rounds alike, but takes subnormal numbers for 0.
[[gnu::always_inline]] inline void store(bfloat16* p, Vector<float> v) {
    constexpr int kSubnormal = 0x20;
    const __m512 all = std::bit_cast<__m512>(v);
    Halves h = std::bit_cast<Halves>(_mm512_cvtneps_pbh(all));
    if (_mm512_fpclass_ps_mask(all, kSubnormal)) [[unlikely]] h = rounded_with_subnormals(v);
    memcpy(p, &h, sizeof h);
}
#else
[[gnu::always_inline]] inline void store(bfloat16* p, Vector<float> v) {
    const Halves h = rounded(v);
    memcpy(p, &h, sizeof h);
}
#endif

// The first n < W elements; the remaining lanes are 0, and are not stored.
template <class T> [[gnu::noinline]] auto load_part(const T* p, int n) {
    T part[kVectorBytes / sizeof(float)] = {};
    memcpy(part, p, size_t(n) * sizeof(T));
    return load(part);
}
template <class T, class V> [[gnu::noinline]] void store_part(T* p, V v, int n) {
    T part[kVectorBytes / sizeof(float)];
    store(part, v);
    memcpy(p, part, size_t(n) * sizeof(T));
}
// `left` elements are left of the row, at least 1.
template <class T> [[gnu::always_inline]] inline auto load(const T* p, int left) {
    return left >= int(sizeof(load(p)) / sizeof(load(p)[0])) ? load(p) : load_part(p, left);
}
template <class T, class V> [[gnu::always_inline]] inline void store(T* p, V v, int left) {
    left >= int(sizeof(V) / sizeof(v[0])) ? store(p, v) : store_part(p, v, left);
}

// Lane i and lane i + half, for half = W / 2, W / 4, ... 1.
template <class V> [[gnu::always_inline]] inline auto sum_lanes(V v) {
    using Real = std::remove_cvref_t<decltype(v[0])>;
    constexpr int W = int(sizeof(V) / sizeof(Real));
    if constexpr (W == 2) {
        return v[0] + v[1];
    } else if constexpr (W == 4) {
        return (v[0] + v[2]) + (v[1] + v[3]);
    } else {
        struct { typename OfBytes<Real, sizeof(V) / 2>::type first, second; } halves;
        memcpy(&halves, &v, sizeof v);
        return sum_lanes(halves.first + halves.second);
    }
}

// Lanes n.. become 0.
template <class V> [[gnu::noinline]] V first_lanes(V v, int n) {
    for (int i = n; i < int(sizeof(V) / sizeof(v[0])); i++) v[i] = 0;
    return v;
}

// The sum of term(i, left) over i = 0, W, 2W, ... below n; the lanes past the end are dropped.
template <class Real, class Term> [[gnu::always_inline]] inline Real sum(int n, Term term) {
    constexpr int W = width<Real>;
    Vector<Real> s[4] = {};
    int i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
        for (int k = 0; k < 4; k++) s[k] += term(i + k * W, W);
    #pragma GCC unroll 1
    for (int k = 0; i < n; i += W, k++) s[k] += n - i >= W ? term(i, W) : first_lanes(term(i, n - i), n - i);
    return sum_lanes((s[0] + s[1]) + (s[2] + s[3]));
}

}  // namespace simd

}  // namespace numbers
