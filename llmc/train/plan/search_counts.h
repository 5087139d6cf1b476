// The number of GPUs for a deadline or a budget: the fastest mesh of each of several numbers.
#pragma once
#include "llmc/train/plan/search.h"

inline namespace plans {

struct CountedSearch {
    std::vector<Estimate> rows;  // the fastest mesh of each number of GPUs, fewest first
    // best: the rows within cluster.days and cluster.dollars, with a deadline the cheapest first, else the
    // fastest. The counts are sums over the searches.
    Search search;
};

// Of rows, at least one: by the run's time, and by its GPU hours.
const Estimate& fastest_of(const std::vector<Estimate>& rows, const Machine& machine);
const Estimate& cheapest_of(const std::vector<Estimate>& rows, const Machine& machine);

// Searches 1, 2, 4 ... kMostGpus GPUs. A deadline or a budget adds numbers between the best power of two and
// its neighbours, in steps of an eighth. Where no power of two keeps both limits, the added numbers lie
// around the most GPUs within the budget (none: the first row) and the fewest within the deadline (none: the
// fastest).
// search_of: the search for one number. Exit code 78: cluster.dollars for a machine without a price.
inline constexpr int kMostGpus = 16384;
CountedSearch search_counts(const ClusterConfig& limits, const Machine& machine,
                            const std::function<Search(int ranks)>& search_of);
CountedSearch search_counts(const Config& cfg, const Machine& machine, const Estimator& estimate);

}  // namespace plans
