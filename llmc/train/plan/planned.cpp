#include "llmc/train/plan/planned.h"

#include <algorithm>
#include <cstdio>

#include "llmc/base/host/cache_file.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/run/run_memory.h"

namespace PRECISION::inline plans {

// Settings that a run takes from this machine. Returns the bytes available to a rank; 0: unknown.
static size_t resolve_here(Config& cfg, int ranks) {
    if (!cfg.run.threads) cfg.run.threads = std::max(1, cores() / ranks);
    context.threads = cfg.run.threads;      // scratch is of each thread
    const auto rank = described_mesh(cfg.parallel, ranks, 0);
    const size_t available = available_to_rank(rank->mesh, cfg.memory);
    cfg.train.micro_batch = choose_micro_batch(cfg, rank->mesh, writes_texts(cfg), available);
    return available;
}

// On the device of this program, without times.
static Planned planned_here(Config cfg, int ranks) {
    const size_t available = resolve_here(cfg, ranks);
    Estimate e = memory_estimate(cfg, ranks);
    e.fits = available == 0 || e.memory.sum() <= available;
    return {.estimate = e, .available = available};
}

void check_measurable(const Config& cfg, int ranks) {
    const ClusterConfig& c = cfg.cluster;
    CHECK_INPUT(c.file.empty() && c.gpus_per_node == 0 && c.node_gbs == 0 && c.network_gbs == 0,
                "cluster.gpu = auto measures this machine as it is: leave out cluster.file, gpus_per_node, "
                "node_gbs and network_gbs");
    CHECK_INPUT(launcher().world == 1,
                "cluster.gpu = auto: {} processes were started; start one, with --parallel.ranks={}: it "
                "measures ranks as threads",
                launcher().world, launcher().world);
    CHECK_INPUT(ranks == 1 || ops::reached_by_host(),
                "cluster.gpu = auto measures one GPU, not {}: name a GPU of the table ({}) or cluster.file",
                ranks, machine_names());
}

static std::string measured_text(const MeasuredStep& step, const Config& cfg, const std::string& path) {
    std::string text = fmt::format("measured {} by steps of {} of {} layers, {} each", step.date, step.layers,
                                   cfg.model.layers, human_seconds(step.seconds));
    if (!path.empty()) text += "; kept in " + path;
    return text + "\n";
}

// On this machine, by a measured step.
static Planned planned_by_measuring(Config cfg, int ranks) {
    check_measurable(cfg, ranks);
    cfg.parallel.ranks = ranks;
    const size_t available = resolve_here(cfg, ranks);
    const MeasuredFile file = {.path = cache_path("machine.json"), .device = ops::device_name()};
    std::optional<MeasuredStep> step = file.find(cfg, ranks);
    if (!step) {
        Planned without_times = planned_here(cfg, ranks);
        if (!without_times.estimate.fits) return without_times;
        fputs("measuring steps on this machine ...\n", stderr);
        step = measure_step(cfg, ranks);
        file.keep(cfg, ranks, *step);
    }
    Machine machine = {.gpu = file.device, .about = "", .sources = ""};
    machine.memory_gb = cfg.cluster.memory_gb > 0 ? cfg.cluster.memory_gb : 1e-9 * double(available);
    machine.bf16_tflops = machine.fp32_tflops = step->tflops;
    machine.device_word = ops::reached_by_host() ? "rank" : "GPU";
    machine.gpus_per_node = ranks;
    machine.host_gbs = step->copy_gbs();
    take_costs(machine, cfg.cluster);
    return {.estimate = measured_estimate(cfg, ranks, machine, *step), .machine = machine,
            .available = size_t(1e9 * machine.memory_gb), .measured = measured_text(*step, cfg, file.path)};
}

static Planned planned_on(const Machine& machine, Config cfg, int ranks) {
    const Target gpu = described_gpu(machine);
    const Described here(gpu);
    const Config planned = over_nccl(cfg);
    const auto rank = described_mesh(planned.parallel, ranks, 0);
    const size_t available = size_t(1e9 * machine.memory_gb);
    cfg.train.micro_batch = choose_micro_batch(planned, rank->mesh, writes_texts(cfg), available);
    return {.estimate = estimate(cfg, ranks, machine), .machine = machine, .here = false,
            .available = available};
}

Planned planned(Config cfg) {
    const bool measured = cfg.cluster.measured();
    std::optional<Machine> machine;
    if (cfg.cluster.named() && !measured) machine = machine_of(cfg);
    check_steps(cfg);
    take_open_settings(cfg);
    const int ranks = ranks_to_plan(cfg);
    check_mesh(cfg, ranks);
    if (machine) return planned_on(*machine, cfg, ranks);
    return measured ? planned_by_measuring(cfg, ranks) : planned_here(cfg, ranks);
}

}  // namespace PRECISION::plans
