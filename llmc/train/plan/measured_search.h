// --plan=search with cluster.gpu=auto: the meshes of this machine, whose ranks are threads and share its
// cores.
//
// To measure every mesh takes hours. Steps of a few small models are measured instead, and a file keeps their
// times: a model for each number of tp ranks, a model for each number of stages, and one of larger
// micro-batches. These models have a block, or two where blocks differ, at most 512 tokens a row, and 4,096
// ids. The ops of these steps price every candidate; measured_step.h interpolates ops of other sizes.
#pragma once
#include "llmc/train/plan/search_counts.h"

// The models to measure for these candidates of `ranks` ranks; their run.threads are resolved.
std::vector<Config> models_to_measure(const std::vector<Config>& candidates, int ranks);

// Configs of small models, with their steps as measured on equally many ranks.
struct MeasuredMeshes {
    std::vector<std::pair<Config, MeasuredStep>> steps;

    // Times of ops as measured on meshes with pp stages. Ops that only other meshes have take the least time
    // of these. pp = 0: the least time on any mesh, for bounds.
    MeasuredStep of_stages(int pp) const;
};

struct HereSearch {
    Search search;
    Machine machine;
    std::string measured;  // for people: date, number of models, file with the times
};
struct HereCounts {
    CountedSearch counts;
    Machine machine;
    std::string measured;
};

// The estimator of candidates with `ranks` ranks, of `threads` threads each. It may be called on any thread.
using MeasuredEstimator = Estimator(const MeasuredMeshes& measured, int ranks, int threads);
// Measure the models whose times no file has, with a line of progress, then search. search_counts_here():
// 1, 2, 4 ... ranks, at most one for each core; a GPU is one rank. Exit code 78: settings that exclude
// measuring, too little memory.
using HereSearchFunction = HereSearch(const Config& cfg, int ranks);
using HereCountsFunction = HereCounts(const Config& cfg);
namespace fp32 {
HereSearchFunction search_here;
HereCountsFunction search_counts_here;
MeasuredEstimator measured_estimator;
}  // namespace fp32
namespace bf16 {
HereSearchFunction search_here;
HereCountsFunction search_counts_here;
MeasuredEstimator measured_estimator;
}  // namespace bf16
namespace fp64 {
HereSearchFunction search_here;
HereCountsFunction search_counts_here;
MeasuredEstimator measured_estimator;
}  // namespace fp64
