#include "llmc/train/plan/measured_search.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "llmc/base/host/cache_file.h"
#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/run/model.h"

namespace PRECISION {

static MeasuredStep measured_once(const MeasuredFile& file, const Config& cfg, int ranks,
                                  const std::string& which) {
    if (std::optional<MeasuredStep> step = file.find(cfg, ranks)) return *step;
    const ParallelConfig& p = cfg.parallel;
    fputs(fmt::format("measuring steps on this machine: {} of {}, tp {}, pp {}, micro-batch {} ...\n", which,
                      counted(ranks, "rank"), p.tp, p.pp, cfg.train.micro_batch).c_str(), stderr);
    const MeasuredStep step = measure_step(cfg, ranks, {.seconds = 1, .taken = Taken::Fastest});
    file.keep(cfg, ranks, step);
    return step;
}

static MeasuredMeshes measured_meshes(const MeasuredFile& file, const std::vector<Config>& candidates,
                                      int ranks) {
    MeasuredMeshes all;
    const std::vector<Config> models = models_to_measure(candidates, ranks);
    for (size_t i = 0; i < models.size(); i++)
        all.steps.emplace_back(models[i], measured_once(file, models[i], ranks,
                                                        fmt::format("{}/{}", i + 1, models.size())));
    return all;
}

// The machine of `ranks` ranks, but for its rates.
static Machine this_machine(const Config& cfg, int ranks) {
    Machine m = {.gpu = ops::device_name(), .about = "", .sources = ""};
    const double available = double(ops::device_available()) / ranks;   // 0: unknown
    m.memory_gb = 1e-9 * (available > 0 ? available : 1e18);
    if (cfg.cluster.memory_gb > 0) m.memory_gb = cfg.cluster.memory_gb;
    m.gpus_per_node = ranks;
    m.product_unit = ops::target().product_unit();
    m.noun = ops::reached_by_host() ? "rank" : "GPU";
    take_costs(m, cfg.cluster);
    return m;
}

Estimator measured_estimator(const MeasuredMeshes& measured, int ranks, int threads) {
    std::map<int, MeasuredStep> tables = {{0, measured.of_stages(0)}};
    for (const auto& [cfg, step] : measured.steps)
        tables.try_emplace(cfg.parallel.pp, measured.of_stages(cfg.parallel.pp));
    return [=](const Config& c, int asked, const Machine& machine) {
        context.threads = threads;
        // of a bound: a part of the ranks
        const auto table = tables.find(asked == ranks ? c.parallel.pp : 0);
        return measured_estimate(c, asked, machine, table == tables.end() ? tables.at(0) : table->second);
    };
}

HereSearch search_here(const Config& asked, int ranks) {
    check_measurable(asked, ranks);
    HereSearch here = {.search = {}, .machine = this_machine(asked, ranks), .measured = {}};
    Config cfg = asked;
    if (!cfg.run.threads) cfg.run.threads = std::max(1, cores() / ranks);
    context.threads = cfg.run.threads;
    const std::vector<Config> candidates = candidates_of(cfg, ranks, here.machine);
    if (candidates.empty()) return here;
    const MeasuredFile file = {.path = cache_path("machine.json"), .device = ops::device_name()};
    const MeasuredMeshes measured = measured_meshes(file, candidates, ranks);
    double tflops = 0, copy = 0;
    for (const auto& [of, step] : measured.steps) {
        tflops = std::max(tflops, step.tflops);
        copy = std::max(copy, step.copy_gbs());
    }
    here.machine.host_gbs = copy;       // a checkpoint begins with a copy
    here.machine.bf16_tflops = here.machine.fp32_tflops = tflops;
    here.search = search(cfg, ranks, here.machine, measured_estimator(measured, ranks, cfg.run.threads));
    here.measured = fmt::format("measured {} by steps of {}", measured.steps.front().second.date,
                                counted(int64_t(measured.steps.size()), "small model"));
    if (!file.path.empty()) here.measured += "; kept in " + file.path;
    here.measured += "\n--plan with --cluster.gpu=auto measures one of these meshes itself\n";
    return here;
}

HereCounts search_counts_here(const Config& cfg) {
    HereCounts here = {.counts = {}, .machine = this_machine(cfg, 1), .measured = {}};
    const int most = ops::reached_by_host() ? std::max(1, cores()) : 1;
    here.counts = search_counts(cfg.cluster, here.machine, most, [&](int ranks) {
        HereSearch found = search_here(cfg, ranks);
        here.measured = found.measured;
        return found.search;
    });
    return here;
}

}  // namespace PRECISION
