#include "llmc/train/run/tally.h"

namespace PRECISION {

static constexpr int kFirstMark = Pipeline::kStaged;
static_assert(kFirstMark + Tally::kPlaces <= ops::kMarks);

Tally::Tally(const Pipeline& p, Optimizer& o, const Axis& w) : pipeline(p), optimizer(o), world(w) {}

void Tally::add_to(Arena& arena, Arena& host) {
    arena.add("figures of a step", &mine, kFigures);
    arena.add("figures of a step", &all, world.staging(size_t(world.size) * kFigures));
    arena.add("figures of a step", &sums, kFigures);
    host.add("tokens and figures on their way", &said, kPlaces * kFigures);
    host.add("tokens and figures on their way", &read_sums, kPlaces * kFigures);
    host.add("tokens and figures on their way", &read_state, kPlaces);
}

void Tally::take(const Signals& asked, const Saver::Progress& saving, double joules) {
    CHECK(taken - given < kPlaces, "tally: %d steps have not been read", kPlaces);
    const int place = int(taken++ % kPlaces);
    double* words = said + place * kFigures;
    if (!only_walks()) {
        words[kSave] = asked.save, words[kStop] = asked.stop;
        words[kDone] = saving.done, words[kFailed] = saving.failed, words[kJoules] = joules;
    }
    ops::start_copy(mine + kSave, words + kSave, (kFigures - kSave) * sizeof *words);
    pipeline.sum_losses(mine + kLoss);
    optimizer.sum_squares(mine + kSquares);
    ops::finish_copies();
    const double* of_all = world.all_gather(all, mine, size_t(kFigures));
    ops::sum_rows(sums, of_all, world.size, kFigures);
    optimizer.set_norm(sums + kSquares, sums + kLoss);
    ops::start_copy(read_sums + place * kFigures, sums, kFigures * sizeof *sums);
    ops::start_copy(read_state + place, optimizer.state, sizeof *read_state);
    ops::mark_copies(kFirstMark + place);
}

StepFigures Tally::read() {
    CHECK(given < taken, "tally: no step to read");
    const int place = int(given++ % kPlaces);
    ops::await_copies(kFirstMark + place);
    const double* sum = read_sums + place * kFigures;
    const ops::GradientState& state = read_state[place];
    return {.loss = sum[kLoss] / pipeline.step_tokens(),
            .norm = double(state.norm),
            .finite = state.finite != 0,
            .asked = {.save = sum[kSave] > 0, .stop = sum[kStop] > 0},
            .saving = {.done = sum[kDone], .failed = sum[kFailed]},
            .joules = sum[kJoules]};
}

}  // namespace PRECISION
