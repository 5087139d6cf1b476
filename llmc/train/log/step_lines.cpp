#include "llmc/train/log/step_lines.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

static std::string fixed(fmt::format_string<double> format, double v) {
    return std::isfinite(v) ? fmt::vformat(format, fmt::make_format_args(v)) : "n/a";
}

static constexpr int kBetween = 2;      // spaces

static int width_of(const std::vector<StepColumn>& columns) {
    int width = -kBetween;
    for (const StepColumn& c : columns) width += c.width + kBetween;
    return width;
}

std::vector<StepColumn> fitting_columns(std::vector<StepColumn> all, int room) {
    while (room > 0 && all.size() > 1 && width_of(all) > room)
        all.erase(std::ranges::max_element(all, {}, &StepColumn::keep));
    return all;
}

// Every column of a row. r: with the means.
static std::vector<StepColumn> columns_of(const StepReport& r, int64_t steps, double joules_per_token) {
    const std::string step = std::to_string(r.step) + "/" + std::to_string(steps);
    std::vector<StepColumn> all = {
        {"step", step, 15, 1},
        {"loss", fixed("{:.5f}", r.loss), 9, 2},
        {"norm", fixed("{:.4f}", r.norm), 8, 6},
        {"lr", fixed("{:.3e}", r.lr), 9, 8},
        {"ms", fixed("{:.1f}", r.ms), 8, 4},
        {"tokens/s", grouped(std::llround(r.tokens_per_s)), 10, 3},
        {"TFLOP/s", fixed("{:.4f}", r.tflops), 8, 10},
        {"mfu", fixed("{:.1f}%", 100 * r.mfu), 6, 7},
        {"memory", r.memory_bytes ? human_bytes(double(r.memory_bytes)) : "-", 8, 9},
        {"left", human_seconds(r.seconds_left), 11, 5}};
    if (std::isfinite(joules_per_token)) all.push_back({"J/token", fixed("{:.2g}", joules_per_token), 7, 11});
    return all;
}

static std::string line_of(const std::vector<StepColumn>& columns, bool titles) {
    std::string line;
    for (const StepColumn& c : columns) {
        if (!line.empty()) line += std::string(kBetween, ' ');
        line += fmt::format("{:>{}}", titles ? c.title : c.cell, c.width);
    }
    return line;
}

void StepLines::add(const StepReport& r, int64_t steps, int64_t batch_tokens, bool due) {
    steps_++;
    ms_ += r.ms;
    tflops_ms_ += r.tflops * r.ms;
    joules_ += r.joules;
    if (r.memory_bytes) memory_bytes_ = r.memory_bytes;
    const bool terminal = on_terminal(1);
    const double now = seconds_now();
    if (!due && (!terminal || now - drawn_ < 0.25)) return;
    drawn_ = now;

    StepReport mean = r;
    mean.memory_bytes = memory_bytes_;
    mean.ms = ms_ / steps_;
    mean.tokens_per_s = double(batch_tokens) / mean.ms * 1e3;
    mean.tflops = tflops_ms_ / ms_;
    mean.mfu = r.tflops > 0 ? r.mfu * mean.tflops / r.tflops : r.mfu;
    // a character is left for the cursor: some terminals wrap a full line
    const int room = terminal ? std::max(0, terminal_columns() - 1) : 0;
    const double joules_per_token = joules_ / steps_ / double(batch_tokens);
    const auto columns = fitting_columns(columns_of(mean, steps, joules_per_token), room);
    if (header_due_) print("{}{}\n", line_start(1), line_of(columns, true));
    header_due_ = false;
    print("{}{}{}", line_start(1), line_of(columns, false), due ? "\n" : "");
    fflush(stdout);
    if (due) steps_ = ms_ = tflops_ms_ = joules_ = 0;
}
