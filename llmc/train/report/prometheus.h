// Metrics in Prometheus' text format, for node_exporter's textfile collector.
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
#pragma once
#include <span>
#include <string>
#include <vector>

// "train_gpt_loss", its help text, and its kind: counter or gauge.
struct MetricKind {
    const char *name, *help, *type;
};
// Metrics of a run: train_gpt_step_total, ..., in this order everywhere.
enum class Metric {
    Step, Loss, GradNorm, LearningRate, Tokens, TokensPerSecond, Mfu, StepSeconds, Skipped, ValLoss,
    ValBitsPerByte, Parameters, World, PlanBytes, Count
};
const MetricKind& kind_of(Metric metric);

// The figures of a run; NaN: not known yet, and no line.
struct RunMetrics {
    std::string run;                            // the label
    std::vector<double> values;

    explicit RunMetrics(std::string run);
    double& operator[](Metric m) { return values[size_t(m)]; }
    double operator[](Metric m) const { return values[size_t(m)]; }
};

std::string prometheus_text(std::span<const RunMetrics> runs);

// Replaces FILE.prom, once a second at most, and last by flush(). Warns once if the file cannot be written.
struct PrometheusFile {
    std::string path;                           // empty: none
    RunMetrics metrics;

    PrometheusFile(std::string path, const std::string& run_dir);
    void changed();
    void flush();

private:
    double written_ = 0;
    bool failed_ = false;
};
