#include "llmc/train/run/step_log.h"

namespace PRECISION {

static double flops_of(ModelConfig m, const StartInfo& info) {
    m.vocab = info.vocab;
    return model_flops_per_token(m, info.params);
}

StepLog::StepLog(const Config& c, const StartInfo& info, Model& m, RunLog& l, RunState& s)
    : cfg(c), model(m), log(l), state(s),
      meter(c, flops_of(c.model, info), info.peak_tflops, info.bus_id, s) {}

void StepLog::begin() {
    traffic.take(model.mesh);
    if (steps.empty()) meter.begin();
}

void StepLog::add(int64_t step, double lr) {
    model.statistics->start_read();
    steps.push_back({.step = step, .lr = lr, .moved = cfg.log.comm ? traffic.take(model.mesh) : CommStep()});
}

static void count_skip(const StepReport& r, int64_t most, int64_t* skipped) {
    if (++*skipped > most)
        fatal(kExitNotFinite, __FILE__, __LINE__, "step {}: loss {:g}, gradient norm {:g}; {} steps were "
              "skipped, train.max_skips = {}. Try a lower optimizer.lr or a longer optimizer.warmup",
              r.step, r.loss, r.norm, *skipped, most);
}

Signals StepLog::write(size_t left) {
    Signals asked;
    for (; steps.size() > left; steps.pop_front()) {
        const Step& s = steps.front();
        const StepResult result = model.statistics->read();
        asked |= model.votes.asked();
        StepReport report{.step = s.step, .loss = result.loss, .norm = result.norm, .lr = s.lr,
                          .finite = result.finite, .joules = result.joules};
        meter.measure(report);
        log.train(report);
        if (cfg.log.comm) log.comm(s.step, s.moved);
        if (!report.finite) count_skip(report, cfg.train.max_skips, &state.skipped);
    }
    return asked;
}

}  // namespace PRECISION
