// From a config to its plan: the calls that --plan and the page of --explore share.
#pragma once
#include <optional>

#include "llmc/base/numbers/each_precision.h"
#include "llmc/train/plan/search.h"

inline namespace plans {

struct Planned {
    Estimate estimate;                    // estimate.cfg has the chosen micro-batch
    std::optional<Machine> machine = {};  // by cluster.*; none: the plan has no times
    bool here = true;                     // on this machine; false: on a GPU that cluster.* describes
    size_t available = 0;                 // bytes for a rank on its device; 0: unknown
    std::string measured = {};            // cluster.gpu=auto, for people: date, models, file with the times
};

// Resolves model.vocab from the checkpoint, the tokenizer or the shards, as a run does.
void take_open_settings(Config& cfg);
// Exit code 78 where a plan has times, by cluster.*, of a run without training steps.
void check_steps(const Config& cfg);
// Ranks of the job that cfg describes.
int ranks_to_plan(const Config& cfg);

// Exit code 78 where the mesh is invalid, or the machine is unknown. Allocates no tensors, except for
// cluster.gpu=auto: where no file has the times, steps run on this machine. With cluster.gpu=auto, a plan
// beyond this machine's memory may have no times.
using PlannedFunction = Planned(Config cfg);
// Exit code 78 where cluster.gpu=auto cannot measure so many ranks with these settings.
using CheckMeasurable = void(const Config& cfg, int ranks);

}  // namespace plans

IN_EACH_PRECISION(plans, PlannedFunction planned; CheckMeasurable check_measurable;)

inline namespace plans {

// The planner of a precision.
struct Planner {
    PlannedFunction* planned;
    EstimateFunction* estimate;
    DrawFunction* drawn_step;
};

}  // namespace plans
