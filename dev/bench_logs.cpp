// Times the calls that log.tensorboard and log.prometheus add to a step, and what every run does:
//
//     bench_logs FOLDER
//
// Prints an object of medians of many calls: event_file_us, a step's scalars, as many as there can be;
// prometheus_us, its metrics; prometheus_write_us, the file, which is written once a second at most;
// step_meter_us, a step's figures with the z-scores of loss and norm. And rank_file_us_per_s: the CPU time of
// the thread that writes ranks/0.json.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/train/log/rank_file.h"
#include "llmc/train/log/step_meter.h"
#include "llmc/train/report/event_file.h"
#include "llmc/train/report/prometheus.h"

template <class F> static double median_us(int calls, F f) {
    std::vector<double> times;
    for (int i = 0; i < calls; i++) {
        const double start = seconds_now();
        f(i);
        times.push_back(1e6 * (seconds_now() - start));
    }
    std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
    return times[size_t(calls / 2)];
}

static double step_meter_us() {
    RunState state;
    StepMeter meter(Config(), 1e9, 1, "", state);
    meter.begin();
    return median_us(20000, [&](int i) {
        StepFigures r = {.step = i, .loss = 3 + 1e-3 * (i % 7), .norm = 1 + 1e-3 * (i % 11)};
        meter.end(r, seconds_now());
    });
}

static double cpu_seconds() {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

static double rank_file_us_per_s(const std::string& folder) {
    constexpr int kSeconds = 6;
    static ProgressPage page;
    progress_page = &page;
    join_progress(0, 1);
    phase(Phase::Train, 1);
    Config cfg;
    cfg.run.dir = folder;
    const RankFile file(cfg, Mesh(), true);
    const double begin = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
    return 1e6 * (cpu_seconds() - begin) / kSeconds;
}

int main(int argc, char** argv) {
    CHECK_INPUT(argc == 2, "bench_logs FOLDER");
    const std::string folder = argv[1];
    EventFile events;
    events.open(folder, -1);
    const double event_file = median_us(20000, [&](int i) {
        const std::vector<Scalar> scalars = {{"train/loss", 3.5}, {"train/norm", 0.7}, {"train/lr", 1e-3},
                                             {"train/ms", 41.5}, {"train/tokens_per_s", 25000.5},
                                             {"train/mfu", 0.6}, {"train/joules", 250.5},
                                             {"train/loss_z", 0.4}, {"train/norm_z", -0.3}};
        events.add({.step = i, .scalars = scalars});
    });
    PrometheusFile prometheus(folder + "/bench.prom", folder);
    for (double& v : prometheus.metrics.values) v = 1.5;
    const double changed = median_us(20000, [&](int) { prometheus.changed(); });
    const double written = median_us(200, [&](int) { prometheus.flush(); });
    printf("{\"event_file_us\":%s,\"prometheus_us\":%s,\"prometheus_write_us\":%s,\"step_meter_us\":%s,"
           "\"rank_file_us_per_s\":%s}\n",
           json_number(event_file).c_str(), json_number(changed).c_str(), json_number(written).c_str(),
           json_number(step_meter_us()).c_str(), json_number(rank_file_us_per_s(folder)).c_str());
    return 0;
}
