// From settings to figures: what --plan and the page of --explore say of a config, by the same calls.
#pragma once
#include <optional>

#include "llmc/train/plan/search.h"

struct Planned {
    Estimate estimate;                    // its cfg has the micro-batch that was chosen
    std::optional<Machine> machine = {};  // of cluster.*; none: this machine, whose memory alone is planned
    bool here = true;                     // on this machine, and no described GPU
    std::string measured = {};            // cluster.gpu=auto: when, by what, and where that is kept
};

// Resolves model.vocab from the checkpoint, the tokenizer or the shards, as a run does.
void take_open_settings(Config& cfg);
// Ranks of the job that cfg describes.
int ranks_to_plan(const Config& cfg);

// Exit code 78 where the mesh cannot be, or the machine is unknown. Allocates nothing, but for
// cluster.gpu=auto, which runs steps on this machine where no file has their times. A plan that does not fit
// this machine has no times there.
using PlannedFunction = Planned(Config cfg);
// Exit code 78 where cluster.gpu=auto cannot measure so many ranks with these settings.
using CheckMeasurable = void(const Config& cfg, int ranks);
namespace fp32 {
PlannedFunction planned;
CheckMeasurable check_measurable;
}  // namespace fp32
namespace bf16 {
PlannedFunction planned;
CheckMeasurable check_measurable;
}  // namespace bf16
namespace fp64 {
PlannedFunction planned;
CheckMeasurable check_measurable;
}  // namespace fp64

// The planner of a precision.
struct Planner {
    PlannedFunction* planned;
    EstimateFunction* estimate;
    DrawFunction* drawn_step;
};
