// What one stage of the pipeline does in an optimizer step, as a list of actions.
//
// One stage yields F0 B0 F1 B1 ..., which is plain gradient accumulation: one path for everybody. Several
// stages hold `chunks` parts of the model each: stage s has parts s, stages + s, 2 stages + s, ...
//
//     1f1b          Narayanan et al. 2019, arXiv 1806.03377 (as PipeDream-Flush: arXiv 2006.09503); one chunk
//     interleaved   Narayanan et al. 2021, arXiv 2104.04473; several chunks, the bubble is as many times less
//
// What a work needs is received just before it, and what it made is sent just after. A send goes on beside
// the works that follow, from one of send_slots() buffers, and is done when its receiver has come; a stage
// waits only where all its buffers are on their way. A send that were waited for at once would deadlock 1f1b
// at two stages, and make interleaved stages wait for each other wherever B > F.
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

// Sends of a stage that may be on their way at once: with fewer, a list may wait for ever.
inline int send_slots(const PipelineShape& p) { return p.stages == 1 ? 0 : p.chunks == 1 ? 1 : 2; }

// Most micro-batches of a chunk that are alive at once, from their arrival or first work to their last work.
// They are consecutive: micro % live_micros() tells them apart.
int live_micros(const std::vector<Action>& list, int chunk);
