// FP16 in files.
#pragma once
#include <cmath>
#include <cstdint>

inline namespace numbers {

struct half {
    uint16_t bits;

    operator float() const {
        const int exponent = bits >> 10 & 31, fraction = bits & 1023;
        float v = std::ldexp(float(fraction), -24);
        if (exponent == 31) v = fraction ? NAN : INFINITY;
        else if (exponent) v = std::ldexp(float(1024 + fraction), exponent - 25);
        return bits & 0x8000 ? -v : v;
    }
};

// Rounded to nearest, ties to even; NaN stays NaN.
inline half half_of(float f) {
    const uint16_t sign = std::signbit(f) ? 0x8000 : 0;
    const float size = std::abs(f);
    if (std::isnan(f)) return {uint16_t(sign | 0x7e00)};
    if (size >= 65520) return {uint16_t(sign | 0x7c00)};
    if (size < 0x1p-14f) return {uint16_t(sign | int(std::nearbyint(std::ldexp(size, 24))))};
    int exponent = 0;
    const float fraction = std::frexp(size, &exponent);     // from 0.5 to 1: 1024 to 2048 for 11 bits
    const int bits = (exponent + 13) * 1024 + int(std::nearbyint(std::ldexp(fraction, 11)));
    return {uint16_t(sign | bits)};
}

}  // namespace numbers
