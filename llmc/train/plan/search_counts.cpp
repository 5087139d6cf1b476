#include "llmc/train/plan/search_counts.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "llmc/base/check.h"
#include "llmc/train/plan/run_cost.h"

inline namespace plans {

static void add_count(CountedSearch& all, Search found) {
    all.search += found;
    if (found.best.empty()) return;
    all.search.by_ops += int(found.best.size()) - 1;
    all.rows.push_back(std::move(found.best.front()));
}

// REQUIRES: rows.
static const Estimate& least_of(const std::vector<Estimate>& rows, const auto& key) {
    return *std::min_element(rows.begin(), rows.end(),
                             [&](const Estimate& a, const Estimate& b) { return key(a) < key(b); });
}
const Estimate& fastest_of(const std::vector<Estimate>& rows, const Machine& machine) {
    return least_of(rows, [&](const Estimate& e) { return cost_of(e, machine).seconds; });
}
const Estimate& cheapest_of(const std::vector<Estimate>& rows, const Machine& machine) {
    return least_of(rows, [&](const Estimate& e) { return cost_of(e, machine).seconds * e.ranks; });
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
static void add_eighths_around(int ranks, std::set<int>& numbers) {
    for (const int below : {ranks / 2, ranks})
        for (int i = 1; i < 8; i++)
            if (below >= 1 && below * i % 8 == 0 && below + below * i / 8 <= kMostGpus)
                numbers.insert(below + below * i / 8);
}

// 0: none.
static int most_within_budget(const std::vector<Estimate>& rows, ClusterConfig limits,
                              const Machine& machine) {
    limits.days = 0;
    int most = 0;
    for (const Estimate& e : rows)
        if (keeps_limits(cost_of(e, machine), limits)) most = e.ranks;
    return most;
}
static int fewest_within_deadline(const std::vector<Estimate>& rows, ClusterConfig limits,
                                  const Machine& machine) {
    limits.dollars = 0;
    for (const Estimate& e : rows)
        if (keeps_limits(cost_of(e, machine), limits)) return e.ranks;
    return 0;
}

// Numbers between powers of two that may keep the limits better than the rows do. More GPUs take less time
// and cost more, except that the fewest that fit may cost more than a few more.
static std::set<int> numbers_between(const CountedSearch& all, const std::vector<Estimate>& best,
                                     const ClusterConfig& limits, const Machine& machine) {
    std::set<int> around;
    if (!best.empty()) around.insert(best.front().ranks);
    if (best.empty() && !all.rows.empty() && limits.dollars > 0) {
        const int in_budget = most_within_budget(all.rows, limits, machine);
        around.insert(in_budget > 0 ? in_budget : all.rows.front().ranks);
    }
    if (best.empty() && !all.rows.empty() && limits.days > 0) {
        const int in_time = fewest_within_deadline(all.rows, limits, machine);
        around.insert(in_time > 0 ? in_time : fastest_of(all.rows, machine).ranks);
    }
    std::set<int> numbers;
    for (const int ranks : around) add_eighths_around(ranks, numbers);
    return numbers;
}

CountedSearch search_counts(const Config& cfg, const Machine& machine, const Estimator& estimate) {
    return search_counts(cfg.cluster, machine,
                         [&](int ranks) { return search(cfg, ranks, machine, estimate); });
}

CountedSearch search_counts(const ClusterConfig& limits, const Machine& machine,
                            const std::function<Search(int ranks)>& search_of) {
    CHECK_INPUT(limits.dollars == 0 || machine.dollars_per_hour > 0,
                "cluster.dollars = {}: no price of {} is known; state it, as in --cluster.dollars_per_hour=2",
                limits.dollars, machine.gpu);
    CountedSearch all;
    for (int ranks = 1; ranks <= kMostGpus; ranks *= 2) add_count(all, search_of(ranks));
    std::vector<Estimate> best = within_limits(all, limits, machine);
    if (limits.days > 0 || limits.dollars > 0) {
        for (const int ranks : numbers_between(all, best, limits, machine))
            add_count(all, search_of(ranks));
        std::sort(all.rows.begin(), all.rows.end(),
                  [](const Estimate& a, const Estimate& b) { return a.ranks < b.ranks; });
        best = within_limits(all, limits, machine);
    }
    all.search.beyond_limits = int(all.rows.size() - best.size());
    all.search.best = std::move(best);
    return all;
}

}  // namespace plans
