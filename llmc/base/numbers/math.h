// exp and tanh without a branch or a call: GCC vectorizes them inside `#pragma omp simd` loops.
//
// float: vexp and vtanh are within 2 ulp of the true value for every float (test/base/numbers/math.cpp tests
// each), with the limits of exp and tanh at infinity, subnormal results, and NaN for NaN. double: libm.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

inline namespace numbers {

namespace simd {

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. ln 2 is split to make n * ln2_high exact.
// REQUIRES: |x| < 128, or NaN
struct ExpParts {
    float p;                                  // exp(r)
    int32_t n;
};
[[gnu::always_inline]] inline ExpParts exp_parts(float x) {
    const float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const float shift = 0x1.8p23f;            // float(n) + shift has n in its low mantissa bits
    const float shifted = x * 1.44269504f + shift, n = shifted - shift;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float p = 0x1.6d75b2p-10f;                // minimax polynomial of (exp(r) - 1 - r) / r^2
    p = p * r + 0x1.120bbap-7f;
    p = p * r + 0x1.5554b8p-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    return {(p * (r * r) + r) + 1.f, std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(shift)};
}

// Both factors of 2^n are normal numbers even if the result is subnormal or infinite: the result is rounded
// once.
[[gnu::always_inline]] inline float vexp(float x) {
    x = x > 89.f ? 89.f : x;                  // NaN passes
    x = x < -104.f ? -104.f : x;
    const auto [p, n] = exp_parts(x);
    const int32_t half = n >> 1;
    const float a = std::bit_cast<float>((half + 127) << 23),
                b = std::bit_cast<float>((n - half + 127) << 23);
    return p * a * b;
}

// exp(x) for x <= 0; 0 near the subnormal numbers, which are slow. A third cheaper.
[[gnu::always_inline]] inline float vexp_negative(float x) {
    const float tiny = -87.f;
    const auto [p, n] = exp_parts(x < tiny ? tiny : x);
    return x < tiny ? 0.f : p * std::bit_cast<float>((n + 127) << 23);
}

// Near 0 an odd polynomial, elsewhere 1 - 2 / (exp(2 |x|) + 1).
[[gnu::always_inline]] inline float vtanh(float x) {
    const float a = std::fabs(x), z = x * x;
    float p = -0x1.7cc1a6p-8f;                // minimax polynomial of (tanh(x) / x - 1) / x^2
    p = p * z + 0x1.53dadap-6f;
    p = p * z + -0x1.b887fcp-5f;
    p = p * z + 0x1.1109ccp-3f;
    p = p * z + -0x1.555542p-2f;
    const float near = p * z * a + a, far = 1.f - 2.f / (vexp(2.f * a) + 1.f);
    return std::copysign(a < 0.625f ? near : far, x);
}

inline double vexp(double x) { return std::exp(x); }
inline double vexp_negative(double x) { return x < -700 ? 0 : std::exp(x); }
inline double vtanh(double x) { return std::tanh(x); }

// What formulas of activations.h ask of a backend.
struct Math {
    template <class Real> [[gnu::always_inline]] static Real exp(Real x) { return vexp(x); }
    template <class Real> [[gnu::always_inline]] static Real exp_negative(Real x) { return vexp_negative(x); }
    template <class Real> [[gnu::always_inline]] static Real quotient(Real a, Real b) { return a / b; }
};

}  // namespace simd

}  // namespace numbers
