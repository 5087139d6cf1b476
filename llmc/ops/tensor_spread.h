// Element statistics of a tensor, with a histogram: the result of ops/decl/spread.h, and sums of results over
// tensors and ranks.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "llmc/base/numbers/dtype.h"

inline namespace any_backend {

// Bin i counts elements with 2^(i + kLowestBin) <= |x| < 2^(i + kLowestBin + 1). The first bin also counts
// smaller elements, the last bin larger elements.
inline constexpr int kSpreadBins = 64, kLowestBin = -40;

// Counts are whole numbers below 2^53, so every sum of counts is exact.
struct Spread {
    double count = 0;                   // elements
    double zeros = 0, nonfinite = 0;    // of these: zero; NaN or infinite
    double squares = 0, sum = 0;        // of the finite elements: sum of x^2, of |x|
    double bins[kSpreadBins] = {};      // of the finite elements that are not zero
    double largest = 0;                 // |x| of the finite elements

    bool operator==(const Spread&) const = default;
};

// A Spread as words: sums, then one maximum.
inline constexpr int kSpreadWords = sizeof(Spread) / sizeof(double), kSpreadSums = kSpreadWords - 1;
static_assert(offsetof(Spread, largest) == kSpreadSums * sizeof(double));

inline void add_spread(Spread& to, const Spread& more) {
    double* const a = &to.count;
    const double* const b = &more.count;
    for (int i = 0; i < kSpreadSums; i++) a[i] += b[i];
    to.largest = std::max(to.largest, more.largest);
}

// REQUIRES: x is finite and not zero.
HOST_DEVICE inline int spread_bin(float x) {
    const int bin = int(std::bit_cast<uint32_t>(x) >> 23 & 0xff) - 127 - kLowestBin;
    if (bin < 0) return 0;
    return bin < kSpreadBins ? bin : kSpreadBins - 1;
}
inline int spread_bin(double x) {
    const int bin = int(std::bit_cast<uint64_t>(x) >> 52 & 0x7ff) - 1023 - kLowestBin;
    return std::clamp(bin, 0, kSpreadBins - 1);
}

}  // namespace any_backend
