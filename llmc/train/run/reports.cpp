#include "llmc/train/run/reports.h"

namespace PRECISION {

void Reports::begin() {
    comm.take(model.mesh);
    if (steps.empty()) log.begin();
}

void Reports::add(int64_t step, double lr) {
    steps.push_back({.step = step, .lr = lr, .turn = checkpoint.saver.turn(), .comm = {}});
    if (cfg.log.comm) steps.back().comm = comm.take(model.mesh);
}

static void count_skip(const Config& cfg, int64_t step, const StepFigures& f, int64_t* skipped) {
    if (++*skipped > cfg.train.max_skips)
        fatal(kExitNotFinite, __FILE__, __LINE__, "step %ld: loss %g, gradient norm %g; %ld steps were "
              "skipped, train.max_skips = %ld. Try a lower optimizer.lr or a longer optimizer.warmup",
              step, f.loss, f.norm, *skipped, cfg.train.max_skips);
}

Signals Reports::settle(size_t left) {
    Signals asked;
    for (; steps.size() > left; steps.pop_front()) {
        const Step& s = steps.front();
        const StepFigures f = model.tally->read();
        asked |= f.asked;
        log.train({s.step, f.loss, f.norm, s.lr, s.step * cfg.train.batch_tokens, f.finite, f.joules});
        if (cfg.log.comm) log.comm(s.step, s.comm);
        // what was said before all got further is of the part of the work that is over
        if (s.turn == checkpoint.saver.turn()) log.checkpoint(checkpoint.take(f.saving));
        if (!f.finite) count_skip(cfg, s.step, f, &state.skipped);
    }
    return asked;
}

}  // namespace PRECISION
