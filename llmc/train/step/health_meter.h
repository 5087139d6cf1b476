// Measures health: gradient norms of the tensors in every step (log.health); in the steps that log.health and
// log.histograms name, spreads of weights, gradients, updates and activations.
//
// A step:  begin(step); pipeline.run(); sum_squares(); { before_update(); the update; after_update() } ...;
// collect() where measuring. Nothing here changes a bit of the training.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/train/step/health.h"
#include "llmc/model/gpt.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline step {

struct HealthMeter {
    bool measuring = false;         // in this step
    double* squares;                // (tensors) sum of squares of each gradient over all ranks; on the device
    std::vector<std::string> names;         // of the tensors of the whole model

    HealthMeter(const Config& cfg, const Shards& shards, Gpt& gpt);
    HealthMeter(const HealthMeter&) = delete;
    // elements: of the largest update.
    void add_to(Arena& arena, size_t elements);

    // step: number of this step, counted from 1. begin_as(): the caller decides whether to measure.
    void begin(int64_t step) { begin_as(cfg.health_due(step) || cfg.histograms_due(step), step); }
    void begin_as(bool measures, int64_t step);
    // Sets *squares where log.health is set. All ranks together.
    void sum_squares();
    // Before, for buckets whose gradients leave the device: of this rank's shard of one.
    void sum_squares(int bucket, const real* shard);

    // Elements of a bucket that one update changes, on the device.
    struct Updated {
        Run run;
        const real* master;         // null: there is none, and param has the weights
        const floatX* param;
        const real* gradient;
    };
    // before_update() copies the masters, or the weights without any; after_update() measures their change.
    void before_update(const Updated& u);
    void after_update(const Updated& u);

    // The sums over all ranks; waits for the device. All ranks together. REQUIRES: measuring.
    Health collect();

private:
    struct TensorRun { size_t tensor; Run run; };          // of a tensor, in this rank's shard
    enum { kWeight, kGradient, kUpdate, kKinds };

    template <class F> void for_each_updated(const Updated& u, F&& f) const;
    Spread* of(int kind, size_t tensor) const { return spreads + size_t(kind) * names.size() + tensor; }
    floatX* stored_before() const { return reinterpret_cast<floatX*>(before); }
    size_t spread_count() const { return kKinds * names.size() + activations.size(); }

    LogConfig cfg;
    const Shards& shards;
    Gpt& gpt;
    std::vector<std::string> activations;   // their names
    std::vector<TensorRun> runs;            // in the order of `names`
    int64_t now = 0;
    size_t most_blocks = 0;
    real* sums;                             // of squares, per block of a run
    double *mine, *all;                     // (tensors), (ranks, tensors)
    Spread* spreads;                        // (kKinds, tensors), then of the activations; of this rank
    real* before;                           // or floatX
};

}  // namespace PRECISION::step
