#include "llmc/train/plan/plan.h"

#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/plan/print.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/run/model.h"

namespace PRECISION {

// The memory plan of the fullest rank: ranks of different stages differ, no others.
static std::string memory_text(const Planned& p) {
    std::optional<Described> gpu;
    if (!p.here) gpu.emplace(kDescribedGpu);
    const Config& own = p.estimate.cfg;
    const Config cfg = p.here ? own : over_nccl(own);
    std::string text;
    size_t most = 0;
    for (const int stage : distinct_stages(cfg).stages) {
        const auto rank = described_mesh(cfg.parallel, p.estimate.ranks, stage * cfg.parallel.tp);
        const Model model(cfg, rank->mesh, cfg.train.micro_batch, writes_texts(cfg));
        if (model.bytes() <= most) continue;
        most = model.bytes();
        text = plan_text(cfg, model);
    }
    return text;
}

static int print_plan(const Planned& p, bool json) {
    const Estimate& e = p.estimate;
    if (json) {
        print("{}\n", to_text(json_of(e, p.machine.has_value())));
        return kExitDone;
    }
    print("{}\n", memory_text(p));
    if (p.machine) print("{}{}\n", time_text(e, *p.machine), p.measured);
    print("{}\n", to_json(e.cfg));
    return kExitDone;
}

static std::string command_of(const Search& found, const PlanRequest& request) {
    return found.best.empty() ? "" : request.command + " " + options_of(found.best.front());
}

static int search_numbers(const Machine& machine, const Config& cfg, const PlanRequest& request) {
    const CountedSearch found = search_counts(cfg, machine, estimate);
    const std::string command = command_of(found.search, request);
    if (request.json)
        print("{}\n", to_text(json_of(found.search, command)));
    else
        print("{}", counts_text(found, cfg.cluster, machine, command));
    return kExitDone;
}

static int search_on(const Machine& machine, const Config& cfg, int ranks, const PlanRequest& request) {
    const Search found = search(cfg, ranks, machine, estimate);
    const std::string command = command_of(found, request);
    if (request.json)
        print("{}\n", to_text(json_of(found, command)));
    else
        print("{}", search_text(found, machine, command));
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
    if (!request.search) return print_plan(planned(cfg), request.json);
    const Machine machine = machine_of(cfg.cluster);
    take_open_settings(cfg);
    const int ranks = cfg.parallel.ranks;
    return ranks == 0 ? search_numbers(machine, cfg, request) : search_on(machine, cfg, ranks, request);
}

}  // namespace PRECISION
