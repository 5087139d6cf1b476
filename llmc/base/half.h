// FP16 in files, read as FP32.
#pragma once
#include <cmath>
#include <cstdint>

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
