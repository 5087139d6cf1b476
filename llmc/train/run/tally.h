// What a step comes to, and what the ranks have to say to each other in it: one small gather, summed where
// the gradients live. The update reads it there; the host reads it when it is due, on a GPU while the next
// step runs.
//
//     pipeline.run(loader); tally.take(...); optimizer.update(...);      any number of steps up to kPlaces
//     tally.read();                                                      waits for the oldest of them
#pragma once
#include "llmc/train/step/optimizer.h"
#include "llmc/train/step/pipeline.h"
#include "llmc/train/save/saver.h"
#include "llmc/base/guard/signals.h"

namespace PRECISION {

struct StepFigures {
    double loss, norm;          // mean per token; of all gradients, before clipping
    bool finite;                // false: the update left everything as it was
    Signals asked;              // of any rank
    Saver::Progress saving;     // of the checkpoint that is being written, summed over the ranks
    double joules;              // likewise; NaN where a rank does not know its own
};

struct Tally {
    static constexpr int kPlaces = 2;

    Tally(const Pipeline& pipeline, Optimizer& optimizer, const Axis& world);
    Tally(const Tally&) = delete;
    void add_to(Arena& arena, Arena& host);

    // After the backwards of a step; leaves the optimizer ready for its update. All ranks together.
    void take(const Signals& asked = {}, const Saver::Progress& saving = {}, double joules = 0);
    StepFigures read();

private:
    // what a rank gives: the sum of its losses, its squares, and the rest of StepFigures
    enum { kLoss, kSquares, kSave, kStop, kDone, kFailed, kJoules, kFigures };

    const Pipeline& pipeline;
    Optimizer& optimizer;
    const Axis& world;
    int64_t taken = 0, given = 0;       // steps
    double *mine, *all, *sums;          // on the device: (kFigures), (ranks, kFigures), (kFigures)
    double *said, *read_sums;           // on the host: (kPlaces, kFigures)
    ops::GradientState* read_state;     // (kPlaces)
};

}  // namespace PRECISION
