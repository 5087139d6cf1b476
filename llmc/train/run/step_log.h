// The step log: prints and stores the statistics of each step, counts skipped steps, collects requests by
// signals. On a GPU the log runs a step behind: the host never waits for the device.
#pragma once
#include <deque>

#include "llmc/base/guard/generation.h"
#include "llmc/comm/stragglers.h"
#include "llmc/train/log/traffic.h"
#include "llmc/train/log/log.h"
#include "llmc/train/log/step_meter.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/run/trace.h"

namespace PRECISION::inline runs {

struct StepLog {
    const Config& cfg;
    Model& model;
    RunLog& log;
    RunState& state;
    StepMeter meter;

    StepLog(const Config& cfg, const StartInfo& info, Model& model, RunLog& log, RunState& state);

    // Starts the clock of a step, unless the previous step is still running on the device. A step of
    // log.trace waits for the previous step.
    void begin();
    // Adds a step after its update. step: number of this step, counted from 1.
    void add(int64_t step, double lr);
    // Waits for the added steps, except the newest `left`, and logs these steps; after a traced step, every
    // added step. Returns the requests of signals to any rank. A step too many in trouble is the last one
    // that is logged before advance(). Where train.rollback allows no rollback (more), that step is fatal().
    // All ranks together.
    Signals write(size_t left = 0);
    // write(), before what is due between two steps. Returns false after a step too many in trouble: nothing
    // is due then but advance().
    bool catches_up(Signals& asked);
    // Moves `state` on by a step. After a step too many in trouble, restores an image, and moves the loader
    // past the data of the trouble. Steps that began meanwhile leave no trace. All ranks together.
    void advance(Loader* loader);      // null: the run does not train
    // write()'s `left` for a running step: 1 on a GPU; 0 where the device is the host, or with run.elastic:
    // an image waits for its step, and follows the step's row.
    static size_t late() { return ops::reached_by_host() || own_generation ? 0 : 1; }

private:
    // sample: the loader's position after the step.
    struct Step { int64_t step, sample; double lr; CommStep moved; std::optional<Health> health; };
    std::deque<Step> steps = {};     // not yet logged
    Traffic traffic = {};
    Spikes spikes;
    Stragglers stragglers;
    struct Wrong { int64_t step, sample; };
    std::optional<Wrong> wrong = {}; // a step too many in trouble

    void count(const StepFigures& r, const Step& s);
    void roll_back(Loader& loader);
    void name_if_slow(int64_t step, const StepResult& result);
    void write_health(const Step& s, const StepFigures& r, const StepResult& result);
    StepTrace trace;
    Signals earlier = {};            // asked for by steps that begin() has logged
};

}  // namespace PRECISION::runs
