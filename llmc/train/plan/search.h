// The search for the fastest mesh: every mesh of `ranks` ranks, with ZeRO stages, recompute levels,
// micro-batches, schedules and offload, that a config can run on.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "llmc/train/plan/estimate.h"

inline namespace plans {

struct Search {
    std::vector<Estimate> best;  // plans that fit, fastest first; at most kShown
    static constexpr size_t kShown = 10;

    // Numbers of other plans: too large for the memory; slower, by the cause of most of the difference to the
    // best plan.
    int without_memory = 0, by_bubble = 0, by_links = 0, by_ops = 0;
    int beyond_limits = 0;       // of cluster.days and cluster.dollars

    int rejected() const { return without_memory + by_bubble + by_links + by_ops + beyond_limits; }
    // Adds what another search counted.
    Search& operator+=(const Search& o);
};

// Every valid plan: meshes with tp within two nodes, ZeRO over all ranks of dp or over those of a node,
// micro-batches of up to 1,024 sequences, interleaved schedules with equal chunks.
std::vector<Config> candidates_of(const Config& cfg, int ranks, const Machine& machine);

// Exhaustive: a candidate is left out unplanned only where a bound shows that its memory is too large, or
// that Search::kShown others are faster. A candidate that does not fit is planned again with memory.offload
// = optimizer, and where none fits, with weights.
// stops: asked before each plan, on any thread; once true, the search ends with what it has found.
using Estimator = std::function<EstimateFunction>;
Search search(const Config& cfg, int ranks, const Machine& machine, const Estimator& estimate,
              const std::function<bool()>& stops = [] { return false; });

// The settings of a candidate that a search chooses: key and value.
using Settings = std::vector<std::pair<std::string, std::string>>;
Settings settings_of(const Estimate& e);
// The same as options of the command line.
std::string options_of(const Estimate& e);

}  // namespace plans
