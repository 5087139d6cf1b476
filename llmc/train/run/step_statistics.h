// Statistics of a step (loss, gradient norm, energy, votes), summed over all ranks by a small all-gather on
// the device. The update reads the sums there; the host reads the sums later, on a GPU during the next step.
//
//     statistics.begin();
//     pipeline.run(loader);
//     const StepSums sums = statistics.sum_over_ranks(signals, joules);
//     optimizer.clip(sums.squares, sums.loss);
//     optimizer.update(lr, step);
//     statistics.start_read();
//     statistics.read();               // waits for the oldest of at most kPlaces steps
#pragma once
#include "llmc/base/guard/signals.h"
#include "llmc/comm/votes.h"
#include "llmc/train/step/optimizer.h"
#include "llmc/train/step/pipeline.h"

namespace PRECISION::inline runs {

// Sums over all ranks, on the device.
struct StepSums {
    const double* loss;             // of every token
    const double* squares;          // of all gradients
};

struct StepResult {
    double loss, norm;              // mean per token; of all gradients, before clipping
    bool finite;                    // false: the update changed nothing
    double joules;                  // of all devices; NaN where a rank's energy is unknown
    double arrived;                 // by seconds_now(): on a GPU earlier than the host reads them
    std::vector<double> own_seconds = {};       // of each rank: Stragglers; empty on GPUs
    std::vector<double> tensor_norms = {};      // of each tensor's gradient, with log.health
};

struct StepStatistics {
    static constexpr int kPlaces = 2;

    // health: whether each tensor's gradient norm is a statistic of the step. REQUIRES: optimizer.health.
    StepStatistics(const Pipeline& pipeline, Optimizer& optimizer, const Axis& world, Votes& votes,
                   bool health);
    StepStatistics(const StepStatistics&) = delete;
    void add_to(Arena& arena, Arena& host);

    // A step begins: the clock of this rank's own time, which ends with sum_over_ranks().
    void begin();
    // Sums after the backward passes of a step. All ranks together. joules: drawn by this rank's device.
    StepSums sum_over_ranks(const Signals& asked = {}, double joules = 0);
    // Starts the copies to the host. REQUIRES: optimizer.clip() has been called.
    void start_read();
    // Waits for the oldest step whose copies started, and returns it. `votes` receive the step's sums.
    StepResult read();

private:
    // What a rank sends: sums of its losses and its squared gradients, its votes, its energy, its own time.
    enum { kLoss, kSquares, kVotes, kJoules = kVotes + Votes::kWords, kOwnSeconds, kWords };

    ops::CopyTicket sent, reads[kPlaces];

    const Pipeline& pipeline;
    Optimizer& optimizer;
    const Axis& world;
    Votes& votes;
    int place_of(int64_t step) const { return int(step % kPlaces); }
    double *mine, *all, *sums;          // on the device: (kWords), (ranks, kWords), (kWords)
    double *sent_words, *read_sums;     // on the host: (kPlaces, kWords)
    double* read_times;                 // (kPlaces)
    ops::GradientState* read_state;     // (kPlaces)
    const double* of_all = nullptr;     // what all ranks sent in the last step
    double began = 0, waited = 0;       // by seconds_now(); waited_for_ranks then
    size_t tensor_count = 0;            // with log.health
    double* read_squares;               // (kPlaces, tensor_count)
};

}  // namespace PRECISION::runs
