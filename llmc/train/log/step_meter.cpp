#include "llmc/train/log/step_meter.h"

#include <algorithm>

#include "llmc/base/progress.h"

inline namespace logs {

double model_flops_per_token(const ModelConfig& settings, int64_t params) {
    const ModelConfig m = with_sizes(settings);
    double looked_up = m.tied ? 0 : double(m.vocab) * m.channels;
    double tokens = 0;              // that a token may attend to, over all layers
    for (int l = 0; l < m.layers; l++) {
        const int window = m.window[size_t(l) % m.window.size()];
        if (has_values(m, l)) looked_up += double(m.vocab) * m.kv_heads * m.head_channels;
        tokens += window ? std::min(window, m.context) : m.context;
    }
    return 6.0 * (double(params) - looked_up) + 6.0 * m.heads * m.head_channels * tokens;
}

std::vector<Measured> values_of(const StepFigures& r) {
    return {{"step", double(r.step)}, {"loss", r.loss}, {"norm", r.norm}, {"lr", r.lr},
            {"tokens", double(r.tokens)}, {"ms", r.ms}, {"tokens_per_s", r.tokens_per_s},
            {"tflops", r.tflops}, {"mfu", r.mfu}, {"memory", double(r.memory_bytes)},
            {"left", r.seconds_left}, {"joules", r.joules}, {"joules_per_token", r.joules_per_token},
            {"loss_z", r.loss_z.value_or(kUnknown)}, {"norm_z", r.norm_z.value_or(kUnknown)}};
}

StepMeter::StepMeter(const Config& cfg, double f, double peak, const std::string& bus_id, RunState& s)
    : steps(cfg.train.steps), batch_tokens(cfg.train.batch_tokens), first_step(s.step),
      first_tokens(s.tokens), flops(f), peak_tflops(peak), state(s), energy(bus_id) {}

void StepMeter::begin() {
    step_begin = seconds_now();
    if (totals.steps == 0) loop_begin = step_begin;
    energy.start();
}

void StepMeter::end(StepFigures& r, double at) {
    energy.read();
    r.tokens = first_tokens + (r.step - first_step) * batch_tokens;
    r.ms = std::max(1e3 * (at - step_begin), 1e-3);
    r.tokens_per_s = double(batch_tokens) / r.ms * 1e3;
    r.tflops = r.tokens_per_s * 1e-12 * flops;
    r.mfu = peak_tflops > 0 ? r.tflops / peak_tflops : kUnknown;
    r.joules_per_token = r.joules / double(batch_tokens);
    r.loss_z = state.loss.score(r.loss);
    r.norm_z = state.norm.score(r.norm);
    span = {step_begin, at};
    step_begin = at;
    totals.steps++;
    totals.ms += r.ms;
    totals.joules += r.joules;
    r.seconds_left = (at - loop_begin) / double(totals.steps) * double(std::max<int64_t>(0, steps - r.step));
}

}  // namespace logs
