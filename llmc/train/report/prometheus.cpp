#include "llmc/train/report/prometheus.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace report {

RunMetrics::RunMetrics(std::string name)
    : run(std::move(name)), values(all_figures().size(), std::numeric_limits<double>::quiet_NaN()) {}

double& RunMetrics::at(std::string_view event, std::string_view key) {
    const auto all = all_figures();
    const auto is_it = [&](const Figure& f) {
        return !f.prometheus.name.empty() && f.of == event && f.key == key;
    };
    const auto found = std::ranges::find_if(all, is_it);
    CHECK(found != all.end(), "{} of {} is no metric in figures.json", key, event);
    return values[size_t(found - all.begin())];
}

void RunMetrics::set(std::string_view event, MeasuredRow row) {
    const auto figures = figures_of(event);
    double* const first = values.data() + (figures.data() - all_figures().data());
    for (size_t i = 0; i < figures.size(); i++)
        if (const auto& metric = figures[i].prometheus; !metric.name.empty())
            first[i] = metric.scale * value_of(figures[i].key, row);
    if (event == "start") at("skips", "steps") = 0;
}

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
    const auto figures = all_figures();
    for (size_t m = 0; m < figures.size(); m++) {
        const auto& [name, help, scale] = figures[m].prometheus;
        std::string lines;
        for (const RunMetrics& run : runs)
            if (const double v = run.values[m]; !std::isnan(v))
                lines += fmt::format("{}{{run=\"{}\"}} {}\n", name, label_of(run.run), v);
        if (lines.empty() || name.empty()) continue;
        const char* type = name.ends_with("_total") ? "counter" : "gauge";
        text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", name, help, type, lines);
    }
    return text;
}

std::string name_of_run(const std::string& run_dir) {
    std::filesystem::path path = std::filesystem::path(run_dir).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    return printable(path.filename().string());     // UTF-8, as the formats are
}

PrometheusFile::PrometheusFile(std::string file, const std::string& run_dir)
    : path(std::move(file)), metrics(name_of_run(run_dir)) {}

// The file begins with the first row after the start.
void PrometheusFile::add(const Logged& logged) {
    if (logged.figures.empty()) return;
    metrics.set(logged.event, logged.figures);
    metrics.at("skips", "steps") += logged.skipped;
    if (logged.event != "start") changed();
}

void PrometheusFile::changed() {
    if (seconds_now() - written_ >= 1) flush();
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

// The row of sinks.cpp.
Sink prometheus(const Config& cfg) {
    if (cfg.log.prometheus.empty()) return {};
    check_output("log.prometheus", cfg.log.prometheus, "# HELP train_gpt_");
    const auto file = std::make_shared<PrometheusFile>(cfg.log.prometheus, cfg.run.dir);
    return {.begin = {}, .add = [file](const Logged& logged) { file->add(logged); }};
}

}  // namespace report
