#include "llmc/train/report/prometheus.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/json.h"
#include "llmc/base/output_file.h"
#include "llmc/base/progress.h"

// `promtool check metrics` refuses names with a unit that is not a base unit, like bits.
static constexpr MetricKind kKinds[] = {
    {"train_gpt_step_total", "Optimizer steps done.", "counter"},
    {"train_gpt_loss", "Mean cross-entropy of the last step, nats per token.", "gauge"},
    {"train_gpt_grad_norm", "Gradient norm of the last step, before clipping.", "gauge"},
    {"train_gpt_learning_rate", "Learning rate of the last step.", "gauge"},
    {"train_gpt_tokens_total", "Tokens since the start of the run.", "counter"},
    {"train_gpt_tokens_per_second", "Tokens per second of all ranks together.", "gauge"},
    {"train_gpt_mfu_ratio", "Share of the matmul rate that the model's FLOPs reach.", "gauge"},
    {"train_gpt_step_seconds", "Time of the last step.", "gauge"},
    {"train_gpt_skipped_steps_total", "Steps that were not finite since this start.", "counter"},
    {"train_gpt_validation_loss", "Mean cross-entropy of the last validation, nats per token.", "gauge"},
    {"train_gpt_validation_bpb", "Bits per byte of the last validation.", "gauge"},
    {"train_gpt_parameters", "Parameters of the model.", "gauge"},
    {"train_gpt_ranks", "Ranks of the run.", "gauge"},
    {"train_gpt_planned_bytes", "Planned memory of the fullest rank.", "gauge"},
};
static_assert(std::size(kKinds) == size_t(Metric::Count));

const MetricKind& kind_of(Metric metric) { return kKinds[size_t(metric)]; }

RunMetrics::RunMetrics(std::string name)
    : run(std::move(name)), values(size_t(Metric::Count), std::numeric_limits<double>::quiet_NaN()) {}

// Backslash, quote and newline are escaped in a label.
static std::string label_of(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || c == '"') out += '\\';
        if (c == '\n') out += "\\n";
        else out += c;
    }
    return out;
}

std::string prometheus_text(std::span<const RunMetrics> runs) {
    std::string text;
    for (size_t m = 0; m < size_t(Metric::Count); m++) {
        std::string lines;
        for (const RunMetrics& run : runs)
            if (const double v = run.values[m]; !std::isnan(v))
                lines += fmt::format("{}{{run=\"{}\"}} {}\n", kKinds[m].name, label_of(run.run), v);
        const auto& [name, help, type] = kKinds[m];
        if (lines.empty()) continue;
        text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", name, help, type, lines);
    }
    return text;
}

// "board" of runs/board/
static std::string name_of(const std::string& run_dir) {
    std::filesystem::path path = std::filesystem::path(run_dir).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    return printable(path.filename().string());     // the format is UTF-8
}

PrometheusFile::PrometheusFile(std::string file, const std::string& run_dir)
    : path(std::move(file)), metrics(name_of(run_dir)) {}

void PrometheusFile::changed() {
    const double now = seconds_now();
    if (path.empty() || now - written_ < 1) return;
    flush();
}

void PrometheusFile::flush() {
    if (path.empty()) return;
    written_ = seconds_now();
    const std::string text = prometheus_text({&metrics, 1});
    const std::string reason = text.empty() ? "" : try_replace_file(path, text);
    if (reason.empty() || failed_) return;
    failed_ = true;
    warning("log.prometheus: cannot write {}: {}. Training goes on.", path, reason);
}
