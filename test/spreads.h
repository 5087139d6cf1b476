// The spread of elements, from its definition.
#pragma once
#include "test/compare.h"

namespace PRECISION {

inline constexpr size_t kSpreadCounts[] = {1, 7, 1001, 16385, 70003};

// Normal numbers over many powers of two, zeros of both signs, NaN and both infinities.
template <class T> std::vector<T> with_specials(size_t count, uint64_t stream) {
    std::vector<T> v = normals<T>(count, stream);
    for (size_t i = 0; i < count; i++) v[i] = T(real(std::ldexp(double(v[i]), int(i % 90) - 50)));
    const double specials[] = {0, -0., NAN, INFINITY, -INFINITY, 1, -0.5, 3e38, 1e-44};
    for (size_t i = 0; i < count; i += 11) v[i] = T(real(specials[i / 11 % std::size(specials)]));
    return v;
}

inline Spread spread_by_definition(const Wide& values) {
    Spread s{.count = double(values.size())};
    for (const double v : values) {
        const double x = std::fabs(v);
        if (!std::isfinite(x)) s.nonfinite++;
        else if (x == 0) s.zeros++;
        else {
            s.squares += x * x, s.sum += x, s.largest = std::max(s.largest, x);
            s.bins[std::clamp(std::ilogb(x) - kLowestBin, 0, kSpreadBins - 1)]++;
        }
    }
    return s;
}

// Sums to a rounding of each term, all else to the bit.
inline bool close(const Spread& got, Spread want) {
    const auto near = [](double a, double b) { return std::fabs(a - b) <= 1e-12 * std::fabs(b); };
    if (!near(got.squares, want.squares) || !near(got.sum, want.sum)) return false;
    want.squares = got.squares, want.sum = got.sum;
    return got == want;
}

}  // namespace PRECISION
