// Threads take runs of elements; the statistics of the runs are added in their order.
#include <cmath>

#include "llmc/base/context.h"
#include "llmc/ops/ops.h"

namespace PRECISION {
namespace cpu {

static constexpr size_t kSpreadRun = 16384, kSpreadRuns = 64;      // elements of a run, runs at once

template <class Value> static Spread spread_of_run(size_t first, size_t end, Value value) {
    Spread s{.count = double(end - first)};
    int64_t bins[kSpreadBins] = {}, zeros = 0, nonfinite = 0;
    for (size_t i = first; i < end; i++) {
        const real x = std::abs(value(i));
        if (!(x <= std::numeric_limits<real>::max())) nonfinite++;
        else if (x == 0) zeros++;
        else {
            bins[spread_bin(x)]++;
            s.squares += double(x) * double(x);
            s.sum += double(x);
            s.largest = std::max(s.largest, double(x));
        }
    }
    s.zeros = double(zeros), s.nonfinite = double(nonfinite);
    for (int i = 0; i < kSpreadBins; i++) s.bins[i] = double(bins[i]);
    return s;
}

template <class Value> static void spread_of(Spread* to, size_t count, Value value) {
    Spread parts[kSpreadRuns];
    for (size_t start = 0; start < count; start += kSpreadRuns * kSpreadRun) {
        const size_t left = std::min(count - start, kSpreadRuns * kSpreadRun);
        const size_t runs = (left + kSpreadRun - 1) / kSpreadRun;
        #pragma omp parallel for schedule(static) num_threads(context.threads) if (runs > 1)
        for (size_t i = 0; i < runs; i++)
            parts[i] = spread_of_run(start + i * kSpreadRun,
                                     start + std::min(left, (i + 1) * kSpreadRun), value);
        for (size_t i = 0; i < runs; i++) add_spread(*to, parts[i]);
    }
}

void spread(Spread* to, const real* values, size_t count) {
    if (walked(spread_cost, "spread", count, sizeof(real))) return;
    spread_of(to, count, [=](size_t i) { return values[i]; });
}
void spread_of_change(Spread* to, const real* after, const real* before, size_t count) {
    if (walked(spread_cost, "spread_of_change", count, 2 * sizeof(real))) return;
    spread_of(to, count, [=](size_t i) { return after[i] - before[i]; });
}
void spread_of_stored_change(Spread* to, const floatX* after, const floatX* before, size_t count) {
    if (walked(spread_cost, "spread_of_stored_change", count, 2 * sizeof(floatX))) return;
    spread_of(to, count, [=](size_t i) { return real(after[i]) - real(before[i]); });
}
void spread_of_stored(Spread* to, const floatX* values, size_t count) {
    if (walked(spread_cost, "spread_of_stored", count, sizeof(floatX))) return;
    spread_of(to, count, [=](size_t i) { return real(values[i]); });
}

}  // namespace cpu
}  // namespace PRECISION
