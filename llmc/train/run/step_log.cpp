#include "llmc/train/run/step_log.h"

namespace PRECISION {

static double flops_of(ModelConfig m, const StartInfo& info) {
    m.vocab = info.vocab;
    return model_flops_per_token(m, info.params);
}

StepLog::StepLog(const Config& c, const StartInfo& info, Model& m, RunLog& l, RunState& s)
    : cfg(c), model(m), log(l), state(s),
      meter(c, flops_of(c.model, info), info.peak_tflops, info.bus_id, s), trace(c, m) {}

void StepLog::begin() {
    const int64_t step = state.step + 1;
    traffic.take(model.mesh);
    if (trace.due(step)) earlier |= write();
    trace.begin(step);
    if (steps.empty()) meter.begin();
}

void StepLog::add(int64_t step, double lr) {
    model.statistics->start_read();
    if (!cfg.log.comm) return steps.push_back({.step = step, .lr = lr, .moved = {}});
    const Timed counts("log");
    steps.push_back({.step = step, .lr = lr, .moved = traffic.take(model.mesh)});
}

static void count_skip(const StepReport& r, int64_t most, int64_t* skipped) {
    if (++*skipped > most)
        fatal(kExitNotFinite, __FILE__, __LINE__, "step {}: loss {:g}, gradient norm {:g}; {} steps were "
              "skipped, train.max_skips = {}. Try a lower optimizer.lr or a longer optimizer.warmup",
              r.step, r.loss, r.norm, *skipped, most);
}

Signals StepLog::write(size_t left) {
    Signals asked = std::exchange(earlier, {});
    if (trace.recording()) left = 0;
    else trace.end();
    for (; steps.size() > left; steps.pop_front()) {
        const Step& s = steps.front();
        const StepResult result = model.statistics->read();
        asked |= model.votes.asked();
        StepReport report{.step = s.step, .loss = result.loss, .norm = result.norm, .lr = s.lr,
                          .finite = result.finite, .joules = result.joules};
        meter.measure(report);
        trace.end();
        log.train(report);
        if (cfg.log.comm) log.comm(s.step, s.moved);
        if (!report.finite) count_skip(report, cfg.train.max_skips, &state.skipped);
        trace.write();
    }
    return asked;
}

}  // namespace PRECISION
