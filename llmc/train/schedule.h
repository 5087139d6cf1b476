// What one stage of the pipeline does in an optimizer step, as a list of actions.
//
// One stage yields F0 B0 F1 B1 ..., which is plain gradient accumulation: one path for everybody. Several
// stages hold `chunks` parts of the model each: stage s has parts s, stages + s, 2 stages + s, ...
//
//     1f1b          Narayanan et al. 2019, arXiv 1806.03377 (as PipeDream-Flush: arXiv 2006.09503); one chunk
//     interleaved   Narayanan et al. 2021, arXiv 2104.04473; several chunks, the bubble is as many times less
//
// A list is safe with sends that wait for their receiver. All stages' works and messages are put in one
// order, in which every message comes after the work it carries and before the work that needs it; each
// stage's list is that order cut down to what the stage takes part in. So whatever is first in the order and
// not done yet can always be done: its stages have nothing before it.
#pragma once
#include <vector>

struct Action {
    enum Kind { Forward, Backward, Send, Recv } kind;
    int chunk, micro;            // of this stage: the chunk that computes, that a message leaves or enters
    enum Way { Activation, Gradient } way = Activation;    // of a message: to the next part or the last
    int peer = -1;               // of a message: the other stage
    bool operator==(const Action&) const = default;
};

struct PipelineShape { int stages, chunks, micros; };

// REQUIRES: chunks == 1.
std::vector<Action> one_f_one_b(const PipelineShape& shape, int stage);

// REQUIRES: micros % stages == 0, stages > 1.
std::vector<Action> interleaved(const PipelineShape& shape, int stage);

// The one of the two that the shape asks for.
std::vector<Action> pipeline_schedule(const PipelineShape& shape, int stage);

// Forwards alone, of any number of micro-batches.
std::vector<Action> forward_schedule(const PipelineShape& shape, int stage);

// Most micro-batches of a chunk that are alive at once, from their arrival or first work to their last work.
// They are consecutive: micro % live_micros() tells them apart.
int live_micros(const std::vector<Action>& list, int chunk);

// Most gradients that wait to be sent while the stage already has the next one.
int waiting_gradients(const std::vector<Action>& list);
