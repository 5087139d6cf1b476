#include "llmc/train/plan/plan.h"

#include <algorithm>
#include <cstdio>

#include "llmc/base/cache_file.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/plan/print.h"
#include "llmc/train/run/model.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/save/resume.h"

namespace PRECISION {

// Settings that a run takes from a checkpoint, the tokenizer and the shards.
static void resolve(Config& cfg) {
    adopt_open_settings(cfg, foresee_origin(cfg).origin, false);
    std::optional<Tokenizer> tokenizer;
    if (!cfg.model.vocab && !cfg.data.tokenizer.empty()) tokenizer = Tokenizer::load(cfg.data.tokenizer);
    cfg.model.vocab = vocab_of(cfg, tokenizer);
    if (!cfg.model.vocab) cfg.model.vocab = open_run_data(cfg).vocab;
}

// The memory plan of the fullest rank: ranks of different stages differ, no others.
static std::string memory_text(const Config& cfg, int ranks) {
    std::string text;
    size_t most = 0;
    for (int stage = 0; stage < cfg.parallel.pp; stage++) {
        const auto rank = described_mesh(cfg.parallel, ranks, stage * cfg.parallel.tp);
        const Model model(cfg, rank->mesh, cfg.train.micro_batch, writes_texts(cfg));
        if (model.bytes() <= most) continue;
        most = model.bytes();
        text = plan_text(cfg, model);
    }
    return text;
}

// Settings that a run takes from this machine. Returns the bytes available to a rank; 0: unknown.
static size_t resolve_here(Config& cfg, int ranks) {
    if (!cfg.run.threads) cfg.run.threads = std::max(1, cores() / ranks);
    context.threads = cfg.run.threads;      // scratch is of each thread
    const auto rank = described_mesh(cfg.parallel, ranks, 0);
    const size_t available = available_to_rank(rank->mesh);
    cfg.train.micro_batch = choose_micro_batch(cfg, rank->mesh, writes_texts(cfg), available);
    return available;
}

// On the device of this program, without times.
static int plan_here(Config cfg, int ranks, bool json) {
    const size_t available = resolve_here(cfg, ranks);
    if (json) {
        Estimate e = memory_estimate(cfg, ranks);
        e.fits = available == 0 || e.memory.sum() <= available;
        puts(to_text(json_of(e, false)).c_str());
    } else {
        printf("%s\n%s\n", memory_text(cfg, ranks).c_str(), to_json(cfg).c_str());
    }
    return kExitDone;
}

static int plan_on(const Machine& machine, Config cfg, int ranks, const PlanRequest& request) {
    const Described gpu(kDescribedGpu);
    Config planned = cfg;
    planned.parallel.transport = TransportKind::Nccl;
    const auto rank = described_mesh(planned.parallel, ranks, 0);
    const size_t available = size_t(1e9 * machine.memory_gb);
    cfg.train.micro_batch = planned.train.micro_batch =
        choose_micro_batch(planned, rank->mesh, writes_texts(cfg), available);
    const Estimate e = estimate(cfg, ranks, machine);
    if (request.json)
        puts(to_text(json_of(e, true)).c_str());
    else
        printf("%s\n%s\n%s\n", memory_text(planned, ranks).c_str(), time_text(e, machine).c_str(),
               to_json(cfg).c_str());
    return kExitDone;
}

static void check_measurable(const Config& cfg, int ranks) {
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
static int plan_measured(Config cfg, int ranks, bool json) {
    check_measurable(cfg, ranks);
    cfg.parallel.ranks = ranks;
    const size_t available = resolve_here(cfg, ranks);
    const MeasuredFile file = {.path = cache_path("machine.json"), .device = ops::device_name()};
    std::optional<MeasuredStep> step = file.find(cfg, ranks);
    if (!step) {
        fputs("measuring steps on this machine ...\n", stderr);
        step = measure_step(cfg, ranks);
        file.keep(cfg, ranks, *step);
    }
    Machine machine = {.gpu = file.device, .about = "", .sources = ""};
    machine.memory_gb = cfg.cluster.memory_gb > 0 ? cfg.cluster.memory_gb : 1e-9 * double(available);
    machine.bf16_tflops = machine.fp32_tflops = step->tflops;
    const Estimate e = measured_estimate(cfg, ranks, machine, *step);
    if (json) {
        puts(to_text(json_of(e, true)).c_str());
        return kExitDone;
    }
    printf("%s\n%s%s\n%s\n", memory_text(cfg, ranks).c_str(), time_text(e, machine).c_str(),
           measured_text(*step, cfg, file.path).c_str(), to_json(cfg).c_str());
    return kExitDone;
}

// Without parallel.ranks: the best mesh of 1, 2, 4 ... GPUs, as far as the batch divides. For a deadline or a
// budget.
static int search_counts(const Machine& machine, const Config& cfg, bool json) {
    constexpr int kMost = 1024;
    Search all;
    for (int ranks = 1; ranks <= kMost && batch_divides(cfg, ranks, 0); ranks *= 2) {
        Search found = search(cfg, ranks, machine, estimate);
        all.without_memory += found.without_memory;
        if (!found.best.empty()) all.best.push_back(std::move(found.best.front()));
    }
    if (json) puts(to_text(json_of(all, "")).c_str());
    else fputs(counts_text(all.best, machine).c_str(), stdout);
    return kExitDone;
}

static int search_on(const Machine& machine, const Config& cfg, int ranks, const PlanRequest& request) {
    const Search found = search(cfg, ranks, machine, estimate);
    const std::string command =
        found.best.empty() ? "" : request.command + " " + options_of(found.best.front());
    if (request.json)
        puts(to_text(json_of(found, command)).c_str());
    else
        fputs(search_text(found, machine, command).c_str(), stdout);
    return kExitDone;
}

int plan(Config cfg, const PlanRequest& request) {
    if (launcher().rank > 0) return kExitDone;
    CHECK_INPUT(!request.search || cfg.cluster.named(),
                "--plan=search compares times: name the GPU by "
                "--cluster.gpu ({}) or by --cluster.file",
                machine_names());
    CHECK_INPUT(!request.search || !cfg.cluster.measured(),
                "--plan=search: cluster.gpu = auto measures one mesh at a time; give --plan with "
                "parallel.ranks, tp, pp and zero, or a GPU of the table ({})",
                machine_names());
    std::optional<Machine> machine;
    if (cfg.cluster.named() && !cfg.cluster.measured()) machine = machine_of(cfg.cluster);
    resolve(cfg);
    const ParallelConfig& p = cfg.parallel;
    if (request.search && p.ranks == 0) return search_counts(*machine, cfg, request.json);
    if (request.search) return search_on(*machine, cfg, p.ranks, request);
    const int ranks = std::max({planned_ranks(p), launcher().world, p.tp * p.pp});
    check_mesh(cfg, ranks);
    if (cfg.cluster.measured()) return plan_measured(cfg, ranks, request.json);
    return machine ? plan_on(*machine, cfg, ranks, request) : plan_here(cfg, ranks, request.json);
}

}  // namespace PRECISION
