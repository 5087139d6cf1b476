// The step log: prints and stores the statistics of each step, counts skipped steps, collects requests by
// signals. On a GPU the log runs a step behind: the host never waits for the device.
#pragma once
#include <deque>

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
    // added step. Returns the requests of signals to any rank. More skipped steps than train.max_skips are
    // fatal(). All ranks together.
    Signals write(size_t left = 0);
    // write()'s `left` for a running step: 1 on a GPU, 0 where the device is the host.
    static size_t late() { return ops::reached_by_host() ? 0 : 1; }

private:
    struct Step { int64_t step; double lr; CommStep moved; std::optional<Health> health; };
    std::deque<Step> steps = {};     // not yet logged
    Traffic traffic = {};
    Spikes spikes;

    void write_health(const Step& s, const StepFigures& r, const StepResult& result);
    StepTrace trace;
    Signals earlier = {};            // asked for by steps that begin() has logged
};

}  // namespace PRECISION::runs
