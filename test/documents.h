// Rows that pack documents of random lengths, for tests of the document mask.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/base/numbers/rng.h"

namespace test {

struct PackedRows {
    int T;
    std::vector<int32_t> positions, ends;       // (B, T), as ops::Documents has them

    // Lengths are 1 to 2 mean - 1. mean 0: no documents
    PackedRows(int B, int T, int mean) : T(T) {
        for (int b = 0; mean > 0 && b < B; b++)
            for (int t = 0, i = 0; t < T; i++) {
                const int length = 1 + int(philox(5, uint64_t(b), uint64_t(i)).x[0] % uint32_t(2 * mean - 1));
                const int end = std::min(T, t + length);
                for (int first = t; t < end; t++) positions.push_back(t - first), ends.push_back(end);
            }
    }
    int begin(int b, int t) const {
        return positions.empty() ? 0 : t - positions[size_t(b) * size_t(T) + size_t(t)];
    }
    // f(sequence, first row, rows) of every document
    template <class F> void each(F f) const {
        for (size_t n = 0; n < ends.size();) {
            const int b = int(n / size_t(T)), t = int(n % size_t(T)), rows = ends[n] - t;
            f(b, t, rows);
            n += size_t(rows);
        }
    }
};

}  // namespace test
