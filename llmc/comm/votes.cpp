#include "llmc/comm/votes.h"

#include <algorithm>

#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"

inline namespace comm {

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

void run_on_rank_0(const Axis& world, const std::function<void(const Heartbeat&)>& work) {
    if (comm::idle_barrier()) {
        if (world.index == 0) work(beat);
        comm::idle_barrier();
        return;
    }
    if (world.index > 0) {
        while (any_of(world, false)) {}
        return;
    }
    double told = seconds_now();
    const std::function<void()> tell = [&] {
        if (context.walk || seconds_now() - told < 0.1) return;
        const BeatListener nobody(nullptr);     // a gather is a heartbeat, too
        any_of(world, true);
        told = seconds_now();
    };
    {
        const BeatListener others(&tell);
        work(beat);
    }
    any_of(world, false);
}

double largest_over(const Axis& ranks, double mine) {
    std::vector<double> all(size_t(ranks.size), mine);
    if (ranks.size > 1) ranks.all_gather(all.data(), &mine, 1);
    return *std::max_element(all.begin(), all.end());
}

Signals agree(const Axis& ranks, const Signals& mine) {
    const auto [save, stop, regroup] =
        sum_over<3>(ranks, {double(mine.save), double(mine.stop), double(mine.regroup)});
    return {.save = save > 0, .stop = stop > 0, .regroup = regroup > 0};
}

}  // namespace comm
