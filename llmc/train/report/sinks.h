// Sinks: where the figures of a run go beside the screen and metrics.jsonl. A sink is a row of sinks.cpp and
// a file of its own; base/config/config.h has its setting.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/ops/tensor_spread.h"
#include "llmc/train/report/figures.h"

inline namespace report {

struct Scalar {
    std::string tag;
    double value;
};

// Of absolute values.
struct Histogram {
    std::string tag;
    Spread spread;
};

// What a run says, at a row of metrics.jsonl as a rule.
struct Logged {
    std::string_view event = {};                // of that row: "train", "task"
    int64_t step = 0;
    MeasuredRow figures = {};                   // those of figures.json
    bool skipped = false;                       // a train step that left the weights unchanged
    std::span<const Scalar> scalars = {};       // scores of tasks, which are no rows of figures.json
    std::span<const Histogram> histograms = {};
    std::string_view text = {};                 // of a sample
};

struct Sink {
    // Training begins: rows up to `step` stay, later ones go; -1: all go. Not called by an evaluation alone.
    // Empty: nothing to do.
    std::function<void(int64_t step)> begin;
    std::function<void(const Logged&)> add;
};

// The sinks that the settings ask for; refuses settings without a possible file. A sink ends with the last
// copy of its functions.
std::vector<Sink> sinks_of(const Config& cfg);

}  // namespace report
