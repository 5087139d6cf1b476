// FP8: the two 8-bit formats of the Open Compute Project's specification (OFP8, 2023), and power-of-two
// scales.
//
//     format   bits: sign, exponent, mantissa   largest          least normal   least   not numbers
//     E4M3     1, 4, 3                          448   = 7 2^6    2^-6           2^-9    NaN 0x7f, 0xff
//     E5M2     1, 5, 2                          57344 = 7 2^13   2^-14          2^-16   as IEEE 754
//
// E4M3 has more precision: for activations and weights. E5M2 has more range: for gradients.
#pragma once
#include <bit>
#include <cstdint>

#include "llmc/base/numbers/dtype.h"

inline namespace numbers {

enum class Fp8 : uint8_t { E4M3, E5M2 };

struct Fp8Format {
    int mantissa, bias;         // bits of the mantissa; an exponent field e stands for 2^(e - bias)
    float largest, least_normal, least;
};
inline constexpr Fp8Format fp8_formats[] = {{3, 7, 448, 0x1p-6f, 0x1p-9f},
                                            {2, 15, 57344, 0x1p-14f, 0x1p-16f}};
inline constexpr uint8_t kFp8Nan = 0x7f;
inline constexpr int kFp8Unit = 16;     // sizes of products of FP8 are multiples of this, as cuBLASLt wants

// The code of x: rounded to nearest, ties to even. Numbers beyond the largest and infinities get the largest;
// NaN gets kFp8Nan.
template <Fp8 F> HOST_DEVICE inline uint8_t fp8_code(float x) {
    constexpr Fp8Format f = fp8_formats[int(F)];
    constexpr int dropped = 23 - f.mantissa;
    // adding 2^23 times the least number leaves a multiple of the least in the lowest bits
    constexpr float rounder = f.least * 0x1p23f;
    constexpr uint32_t largest = std::bit_cast<uint32_t>(f.largest);
    constexpr uint32_t least_normal = std::bit_cast<uint32_t>(f.least_normal);
    const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return kFp8Nan;
    if (size < least_normal) {
        const float rounded = std::bit_cast<float>(size) + rounder;
        return uint8_t(sign | (std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(rounder)));
    }
    const uint32_t limited = size < largest ? size : largest;
    const uint32_t rounded = limited + ((1u << (dropped - 1)) - 1) + (limited >> dropped & 1);
    return uint8_t(sign | ((rounded >> dropped) - (uint32_t(127 - f.bias) << f.mantissa)));
}

template <Fp8 F> HOST_DEVICE inline float fp8_value(uint8_t code) {
    constexpr Fp8Format f = fp8_formats[int(F)];
    constexpr int dropped = 23 - f.mantissa;
    constexpr uint32_t infinity = F == Fp8::E5M2 ? 0x7c : kFp8Nan;     // E4M3 has none
    const uint32_t sign = uint32_t(code & 0x80) << 24, size = code & 0x7f;
    uint32_t bits = (size << dropped) + (uint32_t(127 - f.bias) << 23);
    if (size < 1u << f.mantissa) bits = std::bit_cast<uint32_t>(float(size) * f.least);
    if (size >= infinity) bits = size > infinity || F == Fp8::E4M3 ? 0x7fc00000 : 0x7f800000;
    return std::bit_cast<float>(sign | bits);
}

// The scale of a tensor whose largest magnitude is amax: the power of two that brings amax above half of the
// format's largest number and not beyond the number itself, from 2^-126 to 2^126. Products with powers of two
// are exact, so the scale moves the format's range and rounds nothing. amax = 0: 1. amax not finite: NaN,
// which the product passes on, so that a step with such a number is seen.
HOST_DEVICE inline float fp8_scale(Fp8 format, float amax) {
    constexpr uint32_t fraction_of_seven = 0x600000;        // 7 2^n is 1.75 2^(n + 2)
    const uint32_t bits = std::bit_cast<uint32_t>(amax);
    if (bits >= 0x7f800000) return std::bit_cast<float>(0x7fc00000u);
    if (bits == 0) return 1;
    const int top = format == Fp8::E4M3 ? 8 : 15, beyond = (bits & 0x7fffff) > fraction_of_seven;
    const int exponent = top - (int(bits >> 23) - 127) - beyond;
    const int limited = exponent < 126 ? exponent : 126;
    return std::bit_cast<float>(uint32_t(limited > -126 ? limited + 127 : 1) << 23);
}

// 1 / scale, exactly.
HOST_DEVICE inline float fp8_inverse(float scale) { return 1 / scale; }

}  // namespace numbers
