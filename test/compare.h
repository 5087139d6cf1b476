// How the tests of operations compare: random inputs, a reference in fp64, and the tolerances of the project.
//
//     fp32, and `real` outputs   |error| <= 1e-5 of the sum of the element's absolute products (fp64: 1e-13)
//     bf16 outputs               relative L2 error of the tensor <= 1.5 times the error of rounding the exact
//                                tensor once
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/numbers/rng.h"
#include "llmc/ops/ops.h"
#include "test/test.h"

namespace PRECISION {

using Wide = std::vector<double>;       // of the reference

template <class T>
std::vector<T> normals(size_t count, uint64_t stream, double deviation = 1, double mean = 0) {
    std::vector<T> out(count);
    for (size_t i = 0; i < count; i++) out[i] = T(real(mean + deviation * normal(1234, stream, i)));
    return out;
}

// What an operation has to overwrite.
template <class T> std::vector<T> poisoned(size_t count) { return std::vector<T>(count, T(real(NAN))); }

template <class T> Wide wide(const std::vector<T>& v) {
    Wide out(v.size());
    for (size_t i = 0; i < v.size(); i++) out[i] = double(v[i]);
    return out;
}

template <class T> bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Columns [first, last) of a matrix whose rows are `stride` apart.
template <class T>
std::vector<T> columns(const std::vector<T>& m, size_t stride, size_t first, size_t last) {
    std::vector<T> out;
    for (size_t row = 0; row < m.size(); row += stride)
        for (size_t i = first; i < last; i++) out.push_back(m[row + i]);
    return out;
}

// excess: the error as a multiple of what is allowed; above 1 fails.
struct Mismatch { double excess; size_t at; double got, want; };

// sums[i]: the sum of the absolute products that element i consists of.
template <class T> Mismatch compare_sums(const std::vector<T>& got, const Wide& want, const Wide& sums) {
    const double tolerance = sizeof(T) == 8 ? 1e-13 : 1e-5;
    Mismatch worst = {got.size() == want.size() && sums.size() == want.size() ? 0. : INFINITY, 0, 0, 0};
    for (size_t i = 0; i < want.size() && worst.excess != INFINITY; i++) {
        const double error = std::fabs(double(got[i]) - want[i]);
        const double excess = error == 0 ? 0 : error / (tolerance * std::fabs(sums[i]));
        if (!(excess <= worst.excess))
            worst = {excess == excess ? excess : INFINITY, i, double(got[i]), want[i]};
    }
    return worst;
}

// `factor` times the error of rounding once, in the L2 norm.
inline Mismatch compare_rounded(const std::vector<bfloat16>& got, const Wide& want, double factor) {
    double error = 0, rounding = 0, largest = -1;
    Mismatch worst = {INFINITY, 0, 0, 0};
    if (got.size() != want.size()) return worst;
    for (size_t i = 0; i < want.size(); i++) {
        const double e = double(got[i]) - want[i], r = double(bfloat16(float(want[i]))) - want[i];
        error += e * e, rounding += r * r;
        if (!(std::fabs(e) <= largest)) largest = std::fabs(e), worst = {0, i, double(got[i]), want[i]};
    }
    const double excess = error == 0 ? 0 : std::sqrt(error / rounding) / factor;
    worst.excess = excess == excess ? excess : INFINITY;
    return worst;
}

// Zeros round without error: of these, what cancels is compared in BF16 too.
template <class T>
Mismatch compare(const std::vector<T>& got, const Wide& want, const Wide& sums, double factor = 1.5) {
    if constexpr (std::is_same_v<T, bfloat16>)
        if (std::any_of(want.begin(), want.end(), [](double x) { return x != 0; }))
            return compare_rounded(got, want, factor);
    return compare_sums(got, want, sums);
}

// Also perturbs an element, which the comparison must notice.
template <class T>
void expect_close(const char* file, int line, const char* what, std::vector<T> got, const Wide& want,
                  const Wide& sums, double factor = 1.5) {
    const Mismatch m = compare(got, want, sums, factor);
    if (!(m.excess <= 1))
        test::fail(file, line, "%s[%zu] = %.9g, expected %.9g: %.3g times the tolerance", what, m.at, m.got,
                   m.want, m.excess);
    if (got.empty()) return;
    const size_t i = got.size() / 2;
    double norm = 0;
    for (size_t k = 0; k < want.size(); k++) norm += want[k] * want[k];
    got[i] = T(real(double(got[i]) + 0.02 * std::sqrt(norm) + 1e-3 * sums[i]));
    if (norm > 0 && compare(got, want, sums, factor).excess <= 1)
        test::fail(file, line, "%s: a changed element [%zu] goes unnoticed", what, i);
}

// The derivative of loss() by x, from a difference around it. For FP64.
template <class F> double slope_of(floatX& x, F loss) {
    constexpr double h = 1e-5;
    const floatX before = x;
    x = floatX(real(double(before) + h));
    const double up = loss();
    x = floatX(real(double(before) - h));
    const double down = loss();
    x = before;
    return (up - down) / (2 * h);
}

#define EXPECT_CLOSE(got, want, ...) expect_close(__FILE__, __LINE__, #got, got, want, __VA_ARGS__)

// Threads and scratch for the operations of a test, given back at its end.
struct Lent {
    Context before = context;
    void* memory;
    size_t bytes;

    explicit Lent(int threads, size_t lent = size_t(16) << 20) : bytes(lent) {
        context.threads = threads;
        memory = cpu::device_allocate(bytes);
        cpu::lend_scratch(memory, bytes);
    }
    Lent(const Lent&) = delete;
    ~Lent() { cpu::device_free(memory, bytes); context = before; }
};

}  // namespace PRECISION
