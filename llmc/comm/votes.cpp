#include "llmc/comm/votes.h"

#include <algorithm>

#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"

Votes::Words Votes::send() {
    Words words;
    for (size_t i = 0; i < kWords; i++) words[i] = mine[i];
    sent++;
    return words;
}

void Votes::receive(const double* sums_of_all) {
    std::copy_n(sums_of_all, sums.size(), sums.begin());
    read++;
}

void lead(const Axis& ranks, const std::function<void(const Further&)>& work) {
    if (ranks.index > 0) {
        while (any_of(ranks, false)) {}
        return;
    }
    double told = seconds_now();
    work([&] {
        beat();
        if (seconds_now() - told < 0.1) return;
        any_of(ranks, true);
        told = seconds_now();
    });
    any_of(ranks, false);
}

double largest_over(const Axis& ranks, double mine) {
    std::vector<double> all(size_t(ranks.size), mine);
    if (ranks.size > 1) ranks.all_gather(all.data(), &mine, 1);
    return *std::max_element(all.begin(), all.end());
}

Signals agree(const Axis& ranks, const Signals& mine) {
    const auto [save, stop] = sum_over<2>(ranks, {double(mine.save), double(mine.stop)});
    return {.save = save > 0, .stop = stop > 0};
}
