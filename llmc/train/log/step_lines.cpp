#include "llmc/train/log/step_lines.h"

#include <algorithm>
#include <cmath>

#include "llmc/base/console.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace logs {

// format: of figures.json.
static std::string cell_of(const std::string& format, double v) {
    if (format == "bytes") return v > 0 ? human_bytes(v) : "-";
    if (!std::isfinite(v)) return "n/a";
    if (format == "grouped") return grouped(std::llround(v));
    if (format == "time") return human_seconds(v);
    if (format == "percent") return fmt::format("{:.1f}%", 100 * v);
    return fmt::vformat(format, fmt::make_format_args(v));
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
static std::vector<StepColumn> columns_of(const StepFigures& r, int64_t steps) {
    std::vector<StepColumn> all = {{"step", std::to_string(r.step) + "/" + std::to_string(steps), 15, 1}};
    const std::vector<Measured> values = values_of(r);
    for (const Figure& f : figures_of("train")) {
        const auto& [title, format, width, keep] = f.column;
        const double v = value_of(f.key, values);
        if (width && (std::isfinite(v) || f.unknown != Figure::Absent))
            all.push_back({title.c_str(), cell_of(format, v), width, keep});
    }
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

void StepLines::add(const StepFigures& r, int64_t steps, int64_t batch_tokens, bool due) {
    steps_++;
    ms_ += r.ms;
    tflops_ms_ += r.tflops * r.ms;
    joules_ += r.joules;
    if (r.memory_bytes) memory_bytes_ = r.memory_bytes;
    const bool terminal = on_terminal(1);
    const double now = seconds_now();
    if (!due && (!terminal || now - drawn_ < 0.25)) return;
    drawn_ = now;

    StepFigures mean = r;
    mean.memory_bytes = memory_bytes_;
    mean.ms = ms_ / steps_;
    mean.tokens_per_s = double(batch_tokens) / mean.ms * 1e3;
    mean.tflops = tflops_ms_ / ms_;
    mean.joules_per_token = joules_ / steps_ / double(batch_tokens);
    mean.mfu = r.tflops > 0 ? r.mfu * mean.tflops / r.tflops : r.mfu;
    // a character is left for the cursor: some terminals wrap a full line
    const int room = terminal ? std::max(0, terminal_columns() - 1) : 0;
    const auto columns = fitting_columns(columns_of(mean, steps), room);
    if (header_due_) print("{}{}\n", line_start(1), line_of(columns, true));
    header_due_ = false;
    print("{}{}{}", line_start(1), line_of(columns, false), due ? "\n" : "");
    fflush(stdout);
    if (due) steps_ = ms_ = tflops_ms_ = joules_ = 0;
}

}  // namespace logs
