// The formats of FP8 against their definition: value by value, and rounding against a search of all codes.
#include "llmc/base/numbers/fp8.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "test/test.h"

// By the definition, in FP64.
static double defined(Fp8 format, int code) {
    const int mantissa = format == Fp8::E4M3 ? 3 : 2, bias = format == Fp8::E4M3 ? 7 : 15;
    const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
    double value = std::ldexp((exponent ? 1 : 0) + std::ldexp(fraction, -mantissa),
                              std::max(exponent, 1) - bias);
    if (format == Fp8::E4M3 && (code & 0x7f) == 0x7f) value = NAN;
    if (format == Fp8::E5M2 && exponent == 31) value = fraction ? NAN : INFINITY;
    return code & 0x80 ? -value : value;
}

static float value_of(Fp8 f, int code) {
    return f == Fp8::E4M3 ? fp8_value<Fp8::E4M3>(uint8_t(code)) : fp8_value<Fp8::E5M2>(uint8_t(code));
}
static int code_of(Fp8 f, float x) {
    return f == Fp8::E4M3 ? fp8_code<Fp8::E4M3>(x) : fp8_code<Fp8::E5M2>(x);
}

// The finite code nearest to x, of two as near the even one; the largest beyond it.
static int nearest(Fp8 format, float x) {
    if (std::isnan(x)) return kFp8Nan;
    const double size = std::min(std::fabs(double(x)), double(fp8_formats[int(format)].largest));
    int best = 0;
    double least = INFINITY;
    for (int code = 0; code < 0x7f; code++) {
        const double value = defined(format, code);
        if (!std::isfinite(value)) break;
        const double off = std::fabs(size - value);
        if (off < least || (off == least && code % 2 == 0)) best = code, least = off;
    }
    return best | (std::signbit(x) ? 0x80 : 0);
}

static const Fp8 kFormats[] = {Fp8::E4M3, Fp8::E5M2};

TEST(every_code_has_its_defined_value) {
    for (const Fp8 format : kFormats)
        for (int code = 0; code < 256; code++) {
            const double want = defined(format, code);
            const float got = value_of(format, code);
            const bool equal = want == double(got) && std::signbit(want) == std::signbit(got);
            const bool same = std::isnan(want) ? std::isnan(got) : equal;
            EXPECT(same, "format %d, code %02x: %g, expected %g", int(format), code, double(got), want);
            if (std::isfinite(want))
                EXPECT(code_of(format, got) == code, "format %d: %g gets %02x, expected %02x", int(format),
                       double(got), code_of(format, got), code);
        }
}

TEST(every_bf16_gets_the_nearest_code) {
    for (const Fp8 format : kFormats)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            const float x = std::bit_cast<float>(bits << 16);
            const int got = code_of(format, x), want = nearest(format, x);
            if (got != want)
                EXPECT(false, "format %d, %g: %02x, expected %02x", int(format), double(x), got, want);
        }
}

// Halfway between neighbours, and the floats beside: BF16 has no halves of the least numbers' neighbours.
TEST(every_tie_goes_to_the_even_code) {
    for (const Fp8 format : kFormats)
        for (int code = 0; std::isfinite(defined(format, code + 1)); code++) {
            const float low = value_of(format, code), high = value_of(format, code + 1);
            const float middle = (low + high) / 2, below = std::nextafter(middle, low),
                        above = std::nextafter(middle, high);
            EXPECT(code_of(format, middle) == code + code % 2, "between %02x and the next", code);
            EXPECT(code_of(format, below) == code && code_of(format, above) == code + 1, "beside the middle");
            EXPECT(code_of(format, -middle) == ((code + code % 2) | 0x80), "of -%g", double(middle));
        }
}

// Of every finite amax of BF16 there is.
TEST(scales_are_powers_of_two_that_fill_the_range) {
    for (const Fp8 format : kFormats) {
        const double largest = double(fp8_formats[int(format)].largest);
        for (uint32_t bits = 1; bits < 0x7f80; bits++) {
            const float amax = std::bit_cast<float>(bits << 16), scale = fp8_scale(format, amax);
            int exponent = 0;
            const bool power = std::frexp(scale, &exponent) == 0.5f;
            const double filled = double(amax) * double(scale);
            const bool fits = filled <= largest && (filled > largest / 2 || scale == 0x1p126f);
            if (!power || !fits || fp8_inverse(scale) * scale != 1)
                EXPECT(false, "format %d, amax %g: scale %g", int(format), double(amax), double(scale));
        }
        EXPECT(fp8_scale(format, 0) == 1);
        EXPECT(std::isnan(fp8_scale(format, INFINITY)) && std::isnan(fp8_scale(format, NAN)));
        EXPECT(fp8_scale(format, float(largest)) == 1);
        EXPECT(fp8_scale(format, std::nextafter(float(largest), INFINITY)) == 0.5f);
    }
}
