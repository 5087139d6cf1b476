// Rows that pack documents of random lengths, for tests of the document mask.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "llmc/base/numbers/rng.h"

namespace test {

struct PackedRows {
    int T, queries, first;
    std::vector<int32_t> positions, ends;       // (B, queries) and (B, T), as ops::Documents has them

    // Lengths are 1 to 2 mean - 1. mean 0: no documents
    PackedRows(int B, int T, int mean) : PackedRows(B, T, mean, 0, T) {}
    // Queries of rows first, first + 1, ... of each sequence alone.
    PackedRows(int B, int T, int mean, int first, int queries) : T(T), queries(queries), first(first) {
        for (int b = 0; mean > 0 && b < B; b++)
            for (int t = 0, i = 0; t < T; i++) {
                const int length = 1 + int(philox(5, uint64_t(b), uint64_t(i)).x[0] % uint32_t(2 * mean - 1));
                const int end = std::min(T, t + length);
                for (const int begin = t; t < end; t++) {
                    if (t >= first && t < first + queries) positions.push_back(t - begin);
                    ends.push_back(end);
                }
            }
    }
    // The first row of the document of query t.
    int begin(int b, int t) const {
        return positions.empty() ? 0 : first + t - positions[size_t(b * queries + t)];
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
