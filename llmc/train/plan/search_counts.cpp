#include "llmc/train/plan/search_counts.h"

#include <algorithm>
#include <tuple>

#include "llmc/base/check.h"
#include "llmc/train/plan/run_cost.h"

static void add_count(CountedSearch& all, Search found) {
    all.search += found;
    if (found.best.empty()) return;
    all.search.by_ops += int(found.best.size()) - 1;
    all.rows.push_back(std::move(found.best.front()));
}

// The rows within the limits, best first.
static std::vector<Estimate> within_limits(const CountedSearch& all, const ClusterConfig& limits,
                                           const Machine& machine) {
    std::vector<Estimate> best;
    for (const Estimate& e : all.rows)
        if (keeps_limits(cost_of(e, machine), limits)) best.push_back(e);
    const auto key = [&](const Estimate& e) {
        const RunCost run = cost_of(e, machine);
        const double gpu_seconds = run.seconds * e.ranks;
        return limits.days > 0 ? std::tuple(gpu_seconds, e.ranks) : std::tuple(run.seconds, e.ranks);
    };
    std::stable_sort(best.begin(), best.end(),
                     [&](const Estimate& a, const Estimate& b) { return key(a) < key(b); });
    return best;
}

// Numbers between the powers of two around `ranks`.
static std::vector<int> eighths_around(int ranks, int most) {
    std::vector<int> found;
    for (const int below : {ranks / 2, ranks})
        for (int i = 1; i < 8; i++)
            if (below >= 1 && below * i % 8 == 0 && below + below * i / 8 <= most)
                found.push_back(below + below * i / 8);
    return found;
}

CountedSearch search_counts(const Config& cfg, const Machine& machine, const Estimator& estimate) {
    return search_counts(cfg.cluster, machine, kMostGpus,
                         [&](int ranks) { return search(cfg, ranks, machine, estimate); });
}

CountedSearch search_counts(const ClusterConfig& limits, const Machine& machine, int most,
                            const std::function<Search(int ranks)>& search_of) {
    CHECK_INPUT(limits.dollars == 0 || machine.dollars_per_hour > 0,
                "cluster.dollars = {}: no price of {} is known; state it, as in --cluster.dollars_per_hour=2",
                limits.dollars, machine.gpu);
    CountedSearch all;
    for (int ranks = 1; ranks <= most; ranks *= 2) add_count(all, search_of(ranks));
    std::vector<Estimate> best = within_limits(all, limits, machine);
    if (limits.days > 0 || limits.dollars > 0) {
        // where no power of two keeps the limits, a number beside the cheapest or the fastest may
        int around = all.rows.empty() ? 0 : all.rows.back().ranks;
        if (!best.empty()) around = best.front().ranks;
        for (const int ranks : eighths_around(around, most)) add_count(all, search_of(ranks));
        std::sort(all.rows.begin(), all.rows.end(),
                  [](const Estimate& a, const Estimate& b) { return a.ranks < b.ranks; });
        best = within_limits(all, limits, machine);
    }
    all.search.beyond_limits = int(all.rows.size() - best.size());
    all.search.best = std::move(best);
    return all;
}
