// Silent data corruption: a memory, a processor or a message that changes a bit, and says nothing.
//
//     run.sniff           before the first step all replicas compute one micro-batch, twice, and compare
//     run.check_every     replicas compare their weights and state, after backward passes and before the
//                         update, so that an update hides nothing; and before each checkpoint
//     run.replay_every    all replicas compute the first micro-batch of one rank again, the ranks in turn
//
// Where they differ, the run ends with exit code 75, and saves nothing: a checkpoint that is there was of
// replicas that agreed. With run.elastic the agents put aside the host at fault, where a majority says which,
// and training goes on from the newest state that passed. Nothing here changes a bit of the training.
#pragma once
#include "llmc/train/replicas/replay.h"
#include "llmc/train/run/step_log.h"
#include "llmc/train/save/checkpoint.h"

namespace PRECISION::inline runs {

struct Integrity {
    // Sniffs, if asked to. All ranks together, like check(). REQUIRES: log.start().
    Integrity(const Config& cfg, Model& model, const Dataset& train, Checkpoint& checkpoint, StepLog& steps);
    ~Integrity();
    Integrity(const Integrity&) = delete;

    void check();       // between the backward passes of a step and its update, where due

private:
    bool due(int64_t every) const { return every > 0 && (state.step + 1) % every == 0; }
    void replay();
    void compare_state();
    [[noreturn]] void put_aside(const Suspects& s, const std::string& ranks, const std::string& what,
                                const char* found_by);
    [[noreturn]] void end(const Suspects& s, const std::string& what, const char* found_by);

    const RunConfig& cfg;
    Model& model;
    const Dataset& train;
    Checkpoint& checkpoint;
    StepLog& steps;
    const RunState& state;
    Replay replays;
};

}  // namespace PRECISION::runs
