// The cost of log.trace in a step: steps with and without, in turn.
#pragma once
#include <ctime>
#include <filesystem>
#include <vector>

#include "dev/bench_models.h"
#include "dev/bench_products.h"
#include "llmc/base/context.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/run/trace.h"
#include "llmc/train/save/state_source.h"

namespace PRECISION {
namespace {

// CPU time of this thread, the maker of every record: other work on the machine does not count.
double cpu_seconds() {
    timespec t = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

// A pair of steps, without and with a trace.
struct TracePair { double cpu[2], wall[2]; };

template <class F> double median_of(const std::vector<TracePair>& pairs, F&& figure) {
    std::vector<double> all;
    for (const TracePair& p : pairs) all.push_back(figure(p));
    return median(all);
}

void trace_cost(const char* precision, FILE* json) {
    constexpr int kPairs = 15, kFirst = 2;                  // the first touch memory
    Config cfg = config_of_quickstart();
    cfg.train.batch_tokens = 1024;                          // a micro-batch: as short as a step gets
    const std::filesystem::path place = std::filesystem::temp_directory_path() / "bench_trace";
    std::filesystem::create_directories(place);
    cfg.run.dir = place.string();
    for (int64_t step = 2; step <= 2 * kPairs; step += 2) cfg.log.trace.push_back(step);
    const size_t tokens = size_t(cfg.train.batch_tokens) * 2 * kPairs + 1;
    const Dataset text = random_tokens(cfg.model, tokens);
    Model model(cfg, Mesh(), cfg.train.micro_batch, false);
    warm_up(cfg, model);
    model.allocate();
    restore(model.shards, random_weights(model.shards.d, 1));
    Loader data(text, cfg.train.micro_batch, 0);
    StepTrace trace(cfg, model);
    double between = 0;                                     // until the file of the last step is written
    std::vector<TracePair> pairs(kPairs);
    for (int step = 0; step < 2 * kPairs; step++) {
        TracePair& pair = pairs[size_t(step / 2)];
        trace.begin(step + 1);
        const double wall = seconds_now(), cpu = cpu_seconds();
        model.pipeline.run(data);
        enqueue_update(model, 1e-4, step);
        model.statistics->read();
        pair.cpu[step % 2] = cpu_seconds() - cpu;
        const double end = seconds_now();
        pair.wall[step % 2] = end - wall;
        trace.end({.begin = wall, .end = end});
        if (step + 1 == 2 * kPairs) trace.write();
        between = seconds_now() - end;
    }
    std::filesystem::remove_all(place);
    pairs.erase(pairs.begin(), pairs.begin() + kFirst);
    const double ms = 1e3 * median_of(pairs, [](const TracePair& p) { return p.wall[0]; });
    const double traced = 1e3 * median_of(pairs, [](const TracePair& p) { return p.wall[1]; });
    const double by_wall = median_of(pairs, [](const TracePair& p) { return p.wall[1] / p.wall[0] - 1; });
    const double by_cpu = median_of(pairs, [](const TracePair& p) { return p.cpu[1] / p.cpu[0] - 1; });
    printf("\nlog.trace, quickstart's shape, %s, %d threads: %.2f ms a step, %.2f traced; by the median of "
           "%zu pairs %+.2f%%, of the thread's CPU time %+.2f%% (asked: 2%%); its file after the step "
           "%.2f ms\n", precision, context.threads, ms, traced, pairs.size(), 100 * by_wall, 100 * by_cpu,
           1e3 * between);
    if (!json) return;
    JsonLine line("trace");
    line.add("precision", precision).add("threads", context.threads).add("pairs", int64_t(pairs.size()));
    line.add("ms", ms).add("traced_ms", traced).add("cost", by_wall).add("cpu_cost", by_cpu);
    line.add("file_ms", 1e3 * between);
    fputs(line.str().c_str(), json);
}

}  // namespace
}  // namespace PRECISION
