// What all ranks decide together.
//
// Ranks give a few numbers each and get the sums, added in the order of the ranks: the same bits everywhere,
// so that all decide alike. A step does the same once on the device (tally.h).
#pragma once
#include <array>
#include <functional>
#include <vector>

#include "llmc/comm/axis.h"
#include "llmc/base/guard/signals.h"

template <size_t n>
std::array<double, n> sum_over(const Axis& ranks, const std::array<double, n>& mine) {
    if (ranks.size == 1) return mine;
    std::vector<double> all(n * size_t(ranks.size));
    ranks.all_gather(all.data(), mine.data(), n);
    std::array<double, n> sum{};
    for (size_t i = 0; i < all.size(); i++) sum[i % n] += all[i];
    return sum;
}

inline bool any_of(const Axis& ranks, bool mine) { return sum_over<1>(ranks, {double(mine)})[0] > 0; }

// Rank 0 works, and all others wait for it. They see that it gets further: its calls of further() are a small
// gather of all ranks, ten times a second at most.
using Further = std::function<void()>;
void lead(const Axis& ranks, const std::function<void(const Further& further)>& work);

// The largest over the ranks.
double largest_over(const Axis& ranks, double mine);

// A signal may have reached one rank only.
Signals agree(const Axis& ranks, const Signals& mine);
