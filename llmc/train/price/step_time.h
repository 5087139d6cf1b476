// The time of a training step on a mesh: each stage runs its real list of actions, sends meet receives, and
// collectives over dp run beside the ops until awaited. A message is on its way once both stages have come to
// it; its receiver waits, its sender only for a free buffer. All stages meet for the gradient norm; the
// slowest stage decides.
//
// All tp and dp ranks of a stage do the same. So a step on 16,384 ranks costs a walk of each distinct stage,
// of a few micro-batches. Borders between nodes may lie differently in the copies of a pipeline (groups.h):
// then the slowest copy decides.
#pragma once
#include <vector>

#include "llmc/train/price/prices.h"
#include "llmc/train/price/rank_clocks.h"
#include "llmc/train/step/schedule.h"

inline namespace price {

// A stage, as walked with a few micro-batches.
struct StageTimes {
    std::vector<Action> actions = {};                 // of the walk
    std::vector<std::vector<RankEvent>> events = {};  // of each action; a receive: none
    std::vector<double> message = {};                 // seconds on the way, of each send; else 0
    std::vector<double> near_message = {};            // the same to a stage in the same node
    std::vector<RankEvent> before = {};               // clearing
    std::vector<RankEvent> norm = {};                 // from the last action until all squares are summed
    std::vector<RankEvent> after = {};                // the update: no rank begins before all have summed
    int micros = 0;                                   // of the walk
};

// walk: of a step; its entries name their action.
StageTimes stage_times(const Prices& prices, const Walk& walk, const std::vector<Action>& actions,
                       int micros);

// t: of the stage `walked`. Returns the times of a stage with neighbours `near`.
StageTimes at_stage(StageTimes t, const Near& near, int walked, int stages);

// Of the busiest stage; the others wait for this stage as well.
struct StepTime {
    double seconds = 0;
    SecondsByKind by_kind;  // of the step; with the bubble they sum to `seconds`
    double after = 0;       // seconds after the last action: norm and update
    double bubble = 0;      // seconds without work, while the pipeline fills and empties
};

// The micro-batches that are simulated. Few: those of the pipeline's filling and emptying; each further one
// adds the same time.
enum class Simulated { Few, All };

// shape: of the whole step. stages[s]: the times of stage s; several stages may share a walk.
StepTime step_time(const PipelineShape& shape, const std::vector<const StageTimes*>& stages,
                   Simulated micros = Simulated::Few);

// What a stage does from `begin` to `end`, in seconds since the step began.
enum class SpanKind : char {
    Clear = 'C', Forward = 'F', Backward = 'B', Weight = 'W', Norm = 'N', Update = 'U'
};
struct DrawnSpan {
    SpanKind kind;
    int chunk, micro;
    double begin, end;
};

// A step to draw. Between its spans a stage waits for other stages: the bubble.
struct DrawnStep {
    std::vector<std::vector<DrawnSpan>> stages;
    std::vector<double> waits;  // seconds of each stage, over the whole step
    int busiest = 0;            // the stage of StepTime::by_kind: it waits for StepTime::bubble seconds
    double seconds = 0;         // of the spans: those of the step less those left out
    // Micro-batches beyond the pipeline's filling and emptying are alike. So many are left out at `cut`.
    int micros_left_out = 0;
    double cut = 0, seconds_left_out = 0;
};
DrawnStep draw_step(const PipelineShape& shape, const std::vector<const StageTimes*>& stages);

}  // namespace price
