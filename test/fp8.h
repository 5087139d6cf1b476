// Matrices of FP8 codes for tests, and what their product has to be.
#pragma once
#include <cmath>
#include <vector>

#include "llmc/base/numbers/fp8.h"
#include "test/compare.h"

namespace PRECISION {

// On the host.
struct Coded {
    std::vector<uint8_t> codes, transposed;
    float inverse;
    Fp8 format;
    template <class Matrix> Matrix as() const {
        return {const_cast<uint8_t*>(codes.data()), const_cast<float*>(&inverse), format};
    }
    bool operator==(const Coded&) const = default;
};

// By the ops of a backend whose memory is the host's.
template <class Matrix, class Largest, class Quantize>
Coded coded(const std::vector<floatX>& x, Fp8 format, int rows, int columns, Largest largest,
            Quantize quantize) {
    std::vector<float> amaxes(size_t(cpu::kFp8Parts), NAN);
    Coded c = {std::vector<uint8_t>(x.size()), std::vector<uint8_t>(x.size()), NAN, format};
    largest(amaxes.data(), x.data(), x.size());
    quantize(c.template as<Matrix>(), c.transposed.data(), x.data(), amaxes.data(), cpu::kFp8Parts, rows,
             columns);
    return c;
}

inline Wide values_of(const Coded& c) {
    Wide values;
    for (const uint8_t code : c.codes)
        values.push_back(double(c.format == Fp8::E4M3 ? fp8_value<Fp8::E4M3>(code)
                                                      : fp8_value<Fp8::E5M2>(code)) * double(c.inverse));
    return values;
}

// A product of codes, in FP64.
struct Fp8Case {
    int N, C, OC;
    Fp8 format;
    std::vector<floatX> x, w, bias;
    Fp8Case(int n, int c, int oc, Fp8 f)
        : N(n), C(c), OC(oc), format(f), x(normals<floatX>(size_t(n) * size_t(c), 1, 3e-4)),
          w(normals<floatX>(size_t(oc) * size_t(c), 2, 0.2)), bias(normals<floatX>(size_t(oc), 3, 1e-4)) {}
    Wide sums(bool with_bias) const { return sum(with_bias, [](double v) { return v; }); }
    Wide absolute_sums() const { return sum(true, [](double v) { return std::fabs(v); }); }

private:
    template <class F> Wide sum(bool with_bias, F of) const {
        const Lent lent(1);
        const Wide a = values_of(coded<cpu::Fp8Matrix>(x, format, N, C, cpu::largest, cpu::quantize)),
                   b = values_of(coded<cpu::Fp8Matrix>(w, Fp8::E4M3, OC, C, cpu::largest, cpu::quantize));
        Wide all;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < OC; j++) {
                double total = with_bias ? of(double(bias[size_t(j)])) : 0;
                for (int k = 0; k < C; k++)
                    total += of(a[size_t(i) * size_t(C) + size_t(k)] * b[size_t(j) * size_t(C) + size_t(k)]);
                all.push_back(total);
            }
        return all;
    }
};

}  // namespace PRECISION
