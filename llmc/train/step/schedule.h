// The actions of a pipeline stage in an optimizer step, as a list.
//
// A single stage yields F0 B0 F1 B1 ..., plain gradient accumulation: one code path. Several stages hold
// `chunks` chunks of the model each: stage s has chunks s, stages + s, 2 stages + s, ...
//
//     1f1b          Narayanan et al. 2019, arXiv 1806.03377 (as PipeDream-Flush: arXiv 2006.09503); one chunk
//     interleaved   Narayanan et al. 2021, arXiv 2104.04473; several chunks, which divide the bubble
//     zb            ZB-H1 of Qi et al. 2024, arXiv 2401.10241; one chunk. Backward has two halves: Backward
//                   is the gradient of the input, Weight that of the matrices. Weights of stage s come s
//                   micro-batches later, where 1f1b waits: (stages - 1) (F + B - W) of bubble, not
//                   (stages - 1) (F + B + W). Each stage has as many live micro-batches as the first of 1f1b
//     layers        one stage, a chunk for each block: all micro-batches of a chunk before the next chunk. So
//                   the weights of a block, from the host's memory, come twice a step (Ren et al. 2021, arXiv
//                   2101.06840, stream them for each micro-batch)
//
// A stage receives the input of a forward or backward just before, and sends the output just after. A send
// runs beside the following work, from a buffer of send_buffers(), and ends when its receiver arrives; a
// stage waits only when every buffer is in flight. Blocking sends would deadlock 1f1b at two stages, and make
// interleaved stages wait for each other wherever B > F.
#pragma once
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/comm/axis.h"
#include "llmc/model/layout.h"

inline namespace step {

struct Action {
    enum Kind { Forward, Backward, Weight, Send, Recv } kind;
    int chunk, micro;            // of this stage: the chunk that computes, sends or receives
    // Message content: Activation goes to the next chunk, Gradient to the previous chunk.
    enum Payload { Activation, Gradient } payload = Activation;
    int peer = -1;               // of a message: the other stage
    bool operator==(const Action&) const = default;
};

struct PipelineShape {
    int stages, chunks, micros;
    PipelineSchedule schedule = PipelineSchedule::OneFOneB;
    bool layers = false;         // one stage, by layers

    // Whether backward has two halves.
    bool halves() const { return stages > 1 && schedule == PipelineSchedule::ZeroBubble; }
};

// REQUIRES: chunks == 1.
std::vector<Action> one_f_one_b(const PipelineShape& shape, int stage);

// REQUIRES: micros % stages == 0, stages > 1.
std::vector<Action> interleaved(const PipelineShape& shape, int stage);

// REQUIRES: chunks == 1.
std::vector<Action> zero_bubble(const PipelineShape& shape, int stage);

// REQUIRES: stages == 1.
std::vector<Action> by_layers(const PipelineShape& shape);

// The list of shape.schedule. A single stage has one list, or that by layers.
std::vector<Action> pipeline_schedule(const PipelineShape& shape, int stage);

// Forwards alone, for any number of micro-batches, in the order of the shape.
std::vector<Action> forward_schedule(const PipelineShape& shape, int stage);

// Sends of a stage in flight: with fewer buffers, a list may wait for ever.
inline int send_buffers(const PipelineShape& p) {
    if (p.stages == 1) return 0;
    return p.chunks == 1 ? 1 : 2;
}

// Most live micro-batches of a chunk: from arrival or first work to last work. Live micro-batches are
// consecutive: micro % live_micros() tells them apart.
int live_micros(const std::vector<Action>& list, int chunk);

// The part of stage `stage` of `stages`, each of `chunks` chunks: its chunk c is number c * stages + stage of
// the stages * chunks chunks in a row that the model is cut into. REQUIRES: as many blocks as chunks.
Part make_part(int L, int stage, int stages, int chunks = 1);

// This rank's pipeline stage: its actions in a step, and its live micro-batches.
struct Stage {
    PipelineShape shape;            // micros: of a step
    int index = 0;
    std::vector<Action> actions;    // of a step; empty without training
    std::vector<int> buffers;         // of each chunk: micro-batches alive at once

    std::vector<Action> forwards(int micros) const {
        return forward_schedule({.stages = shape.stages, .chunks = shape.chunks, .micros = micros,
                                 .layers = shape.layers}, index);
    }
    // Of a model of L blocks. By layers a chunk is a block, for the order of a step alone.
    Part part(int L) const { return make_part(L, index, shape.stages, shape.chunks); }
    Part part_to_infer(int L) const {
        return make_part(L, index, shape.stages, shape.layers ? 1 : shape.chunks);
    }
};

// Micro-batches that each rank computes in a step (Deal). fatal() if train.batch_tokens does not divide, with
// values that do.
int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch);

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch);

}  // namespace step
