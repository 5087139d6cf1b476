// Metrics in Prometheus' text format, for node_exporter's textfile collector.
// https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
#pragma once
#include <span>
#include <string>
#include <vector>

#include "llmc/train/report/sinks.h"

inline namespace report {

// The metrics of a run, in the order of all_figures(); NaN: not known yet, or no metric, and no line.
struct RunMetrics {
    std::string run;                            // the label
    std::vector<double> values;

    explicit RunMetrics(std::string run);
    // Of a row of metrics.jsonl: a figure that the row lacks is unknown. With "start" skips are counted anew.
    void set(std::string_view event, MeasuredRow row);
    double& at(std::string_view event, std::string_view key);
};

std::string prometheus_text(std::span<const RunMetrics> runs);

std::string name_of_run(const std::string& run_dir);        // "board" of runs/board/

// Replaces FILE.prom, once a second at most, and at the end. Warns once if the file cannot be written.
struct PrometheusFile {
    std::string path;                           // empty: none
    RunMetrics metrics;

    PrometheusFile(std::string path, const std::string& run_dir);
    ~PrometheusFile() { flush(); }
    PrometheusFile(const PrometheusFile&) = delete;
    void add(const Logged& logged);
    void changed();
    void flush();

private:
    double written_ = 0;
    bool failed_ = false;
};

}  // namespace report
