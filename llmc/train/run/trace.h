// log.trace: records the steps named there, on every rank, and writes run.dir/trace_step_N.json.
//
// On a GPU marks on the device's clock are set around ops; they are read when the step is complete, so no
// wait is added within the step. Before a traced step the host waits for the earlier steps.
#pragma once
#include <memory>

#include "llmc/ops/timed.h"
#include "llmc/train/log/trace_lanes.h"
#include "llmc/train/run/run_memory.h"

namespace PRECISION::inline runs {

struct StepTrace {
    StepTrace(const Config& cfg, const Model& model);
    ~StepTrace();
    StepTrace(const StepTrace&) = delete;

    bool due(int64_t step) const;           // the step is one of log.trace
    // Starts to record, if the step is due. A profiler gets its ranges in every step.
    // REQUIRES, of a step that is due: earlier steps are complete.
    void begin(int64_t step);
    bool recording() const { return running && running->timeline.records; }
    // Ends the recording, if any. span: begin and end of the step. REQUIRES: a recorded step is complete.
    void end(StepSpan span = {});
    // Writes the step recorded last, once. A file that cannot be written is a warning. All ranks together.
    void write();

private:
    const Config& cfg;
    const Model& model;
    bool profiled;
    struct Recording {
        Walk walk;                          // context.walk while the step runs
        Timeline timeline = {};
        StepSpan span = {};
    };
    int64_t step = 0;                       // of the recording
    std::unique_ptr<Recording> running;
    std::unique_ptr<Recording> complete;    // not yet written
    Walk* outer = nullptr;                  // context.walk before
    TracedDevice device;
    bool failed = false;                    // a warning is printed

    void begin_on_device(size_t marks);
    void keep_collectives();
    std::string lines();                    // of this rank
};

}  // namespace PRECISION::runs
