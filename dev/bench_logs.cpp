// Times the calls that log.tensorboard and log.prometheus add to a step:
//
//     bench_logs FOLDER
//
// Prints {"event_file_us":..,"prometheus_us":..,"prometheus_write_us":..}, medians of many calls: a step's
// scalars, a step's metrics, and the file, which is written once a second at most.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/json.h"
#include "llmc/base/progress.h"
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

int main(int argc, char** argv) {
    CHECK_INPUT(argc == 2, "bench_logs FOLDER");
    const std::string folder = argv[1];
    EventFile events;
    events.open(folder, -1);
    const double event_file = median_us(20000, [&](int i) {
        const std::vector<Scalar> scalars = {{"train/loss", 3.5}, {"train/norm", 0.7}, {"train/lr", 1e-3},
                                             {"train/ms", 41.5}, {"train/tokens_per_s", 25000.5},
                                             {"train/mfu", 0.6}};
        events.add(i, scalars);
    });
    PrometheusFile prometheus(folder + "/bench.prom", folder);
    for (double& v : prometheus.metrics.values) v = 1.5;
    const double changed = median_us(20000, [&](int) { prometheus.changed(); });
    const double written = median_us(200, [&](int) { prometheus.flush(); });
    printf("{\"event_file_us\":%s,\"prometheus_us\":%s,\"prometheus_write_us\":%s}\n",
           json_number(event_file).c_str(), json_number(changed).c_str(), json_number(written).c_str());
    return 0;
}
