// Helpers for tests of the log: printed text, the rows of metrics.jsonl, settings of a small run.
#pragma once
#include <limits>
#include <sstream>

#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/progress.h"
#include "llmc/train/log/log.h"
#include "llmc/train/log/step_meter.h"
#include "test/test.h"

using std::string;

// The text that f prints on stdout.
inline string printed(const std::function<void()>& f) { return test::captured(1, f); }

inline std::vector<string> lines(const string& text) {
    std::vector<string> all;
    std::stringstream in(text);
    for (string line; std::getline(in, line);) all.push_back(line);
    return all;
}

inline Config small(const string& name) {
    Config c;
    c.run.dir = test::folder(name);
    c.model = {.layers = 2, .heads = 2, .channels = 64, .context = 64};
    c.train = {.steps = 200, .batch_tokens = 512};
    return c;
}

// small() with its folder, ready for a start.
inline Config small_run(const string& name) {
    const Config c = small(name);
    make_directories(c.run.dir);
    return c;
}

inline const StartInfo kInfo = {.device = "cpu, a \"name\"",
                                .precision = "fp32", .data = "3 shards",
                                .threads = 2,
                                .params = 100000,
                                .vocab = 512,
                                .micro_batch = 4,
                                .plan_bytes = 1234567, .bus_id = "",
                                .peak_tflops = 0.5, .tokens = 200 * 512, .epochs = {}};
inline const double kNaN = std::numeric_limits<double>::quiet_NaN();

// A log that has started, with the meter of its steps.
struct LoggedRun {
    RunState state;
    RunLog log;
    StepMeter meter;

    LoggedRun(const Config& c, const StartInfo& info)
        : log(c), meter(c, model_flops_per_token(c.model, info.params), info.peak_tflops, "", state) {
        log.start(c, info, "", state);
    }
    void begin() { meter.begin(); }
    void train(StepFigures r) {
        meter.end(r, seconds_now());
        log.train(r);
    }
};
