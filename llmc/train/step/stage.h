// This rank's pipeline stage: its actions in a step, and its live micro-batches.
#pragma once
#include "llmc/base/config/config.h"
#include "llmc/comm/axis.h"
#include "llmc/model/layout.h"
#include "llmc/train/step/schedule.h"

inline namespace step {

struct Stage {
    PipelineShape shape;            // micros: of a step
    int index = 0;
    std::vector<Action> actions;    // of a step; empty without training
    std::vector<int> buffers;         // of each chunk: micro-batches alive at once

    std::vector<Action> forwards(int micros) const {
        return forward_schedule({shape.stages, shape.chunks, micros}, index);
    }
};

// Micro-batches of a rank in a step. fatal() if train.batch_tokens does not divide, with values that do.
int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch);

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch);

// The part of stage `stage` of `stages`, each of `chunks` chunks: its chunk c is number c * stages + stage of
// the stages * chunks chunks in a row that the model is cut into. REQUIRES: as many blocks as chunks.
Part make_part(int L, int stage, int stages, int chunks = 1);

}  // namespace step
