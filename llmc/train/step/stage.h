// This rank's stage of the pipeline: what it does in a step, and how much it holds meanwhile.
#pragma once
#include "llmc/base/config/config.h"
#include "llmc/comm/axis.h"
#include "llmc/train/step/schedule.h"

struct Stage {
    PipelineShape shape;            // micros: of a step
    int index = 0;
    std::vector<Action> actions;    // of a step; empty where there is none to train
    std::vector<int> slots;         // of each chunk: micro-batches alive at once

    std::vector<Action> forwards(int micros) const {
        return forward_schedule({shape.stages, shape.chunks, micros}, index);
    }
};

// Micro-batches of a rank in a step. train.batch_tokens that do not divide end in fatal() with what would.
int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch);

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch);
