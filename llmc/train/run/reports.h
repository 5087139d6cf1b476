// What the host does with a step's figures: it logs them, counts steps that were skipped, and learns what
// signals ask for. Where the host does not wait for the device, that is one step late.
#pragma once
#include <deque>

#include "llmc/train/save/checkpoint.h"
#include "llmc/train/run/comm_log.h"
#include "llmc/train/run/log.h"
#include "llmc/train/run/model.h"

namespace PRECISION {

struct Reports {
    const Config& cfg;
    Model& model;
    Checkpoint& checkpoint;
    RunLog& log;
    RunState& state;

    // A step begins: its clock, unless the one before has yet to end.
    void begin();
    // Its update is under way. step: with this one.
    void add(int64_t step, double lr);
    // Waits for all steps but the newest `left`; what has been asked of any rank. Too many skipped steps are
    // fatal(). All ranks together.
    Signals settle(size_t left = 0);
    // How many may be left: none where the device is the host.
    static size_t late() { return ops::reached_by_host() ? 0 : 1; }

    struct Step { int64_t step; double lr; int turn; CommStep comm; };
    std::deque<Step> steps = {};     // not yet settled
    CommLog comm = {};
};

}  // namespace PRECISION
