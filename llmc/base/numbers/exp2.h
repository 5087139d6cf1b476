// 2^x by multiplications and additions: a GPU has an eighth as many units for exponentials as for these.
#pragma once
#include <bit>
#include <cstdint>

#include "llmc/base/numbers/dtype.h"

inline namespace numbers {

//     2^x = 2^n 2^f,  n = round(x), |f| <= 1/2
//
// 2^f is a minimax polynomial, off by 3e-6 of it, and 1 at 0. Below 2^-126 the result may be 0; NaN passes.
// REQUIRES: x < 127
HOST_DEVICE inline float exp2_by_fma(float x) {
    constexpr float shift = 0x1.8p23f;          // n + shift has n in its lowest bits
    x = x < -127 ? -127 : x;
    const float shifted = x + shift, f = x - (shifted - shift);
    float p = 0x1.3a02d4p-7f;
    p = p * f + 0x1.c9fc52p-5f;
    p = p * f + 0x1.ec0378p-3f;
    p = p * f + 0x1.62e12cp-1f;
    p = p * f + 1;
    const uint32_t one = 0x3f800000, power = one + (std::bit_cast<uint32_t>(shifted) << 23);
    return p * std::bit_cast<float>(power);
}

}  // namespace numbers
