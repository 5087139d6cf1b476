// Measures steps: time, rates, energy, and how unusual loss and gradient norm are.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/train/log/energy.h"
#include "llmc/train/report/figures.h"
#include "llmc/train/save/run_state.h"

inline namespace logs {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();    // null in metrics.jsonl

// Figures of a step. Rates are sums over all ranks.
struct StepFigures {
    int64_t step = 0;               // steps finished, including this step
    double loss = 0, norm = 0, lr = 0;
    bool finite = true;             // false: the update left the weights unchanged
    double joules = kUnknown;       // of all devices
    size_t memory_bytes = 0;        // in use now: of the host by this process, of a GPU by all; 0: not asked
    // StepMeter::end() fills in the rest
    int64_t tokens = 0;             // since the start of the run
    double ms = 0, tokens_per_s = 0, tflops = 0;
    double joules_per_token = kUnknown;
    double mfu = 0;                 // share of the matmul rate; NaN: unknown rate
    double seconds_left = 0;        // of the run, with evaluations, texts and checkpoints on the way
    std::optional<double> loss_z = {}, norm_z = {};     // against the last steps (Trailing)
};
std::vector<Measured> values_of(const StepFigures& r);      // by the keys of figures.json

// From the begin to the end of a step's `ms`, by seconds_now().
struct StepSpan { double begin = 0, end = 0; };

struct StepMeter {
    // flops: of a token. peak_tflops: matmul rate of all ranks together; 0: unknown. bus_id: of this rank's
    // device, for NVML; empty: none. `state` keeps the windows of losses and norms.
    StepMeter(const Config& cfg, double flops, double peak_tflops, const std::string& bus_id,
              RunState& state);

    void begin();                   // starts the clock
    // Stops the clock at `at`, by seconds_now(), and starts the next step's.
    void end(StepFigures& r, double at);
    // Drawn by this rank's device within steps since the last call: the gradients of this step and the update
    // of the step before. NaN: unknown.
    double joules() { return energy.take(); }

    StepSpan span;                  // of the last step
    // Of this start.
    struct Totals { int64_t steps = 0; double ms = 0, joules = 0; } totals;

private:
    int64_t steps, batch_tokens;    // of the run; of a step
    int64_t first_step, first_tokens;           // before this start
    double flops, peak_tflops;
    RunState& state;
    EnergyMeter energy;
    double step_begin = 0, loop_begin = 0;      // by seconds_now()
};

// 6 N + 6 L A T: forward and backward, attention causal. N: params without tables for look-ups alone (an
// untied embedding, value embeddings); A: channels of all heads; T: the context, or a layer's smaller window.
// REQUIRES: m.vocab is resolved.
double model_flops_per_token(const ModelConfig& m, int64_t params);

}  // namespace logs
