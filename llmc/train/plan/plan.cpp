#include "llmc/train/plan/plan.h"

#include <set>

#include "llmc/base/config/options.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/plan/measured_search.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/plan/print.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/run/model.h"

namespace PRECISION {

// The memory plan of the fullest rank: ranks of different stages differ, no others.
static std::string memory_text(const Planned& p) {
    std::optional<Described> here;
    const Target gpu = p.machine ? described_gpu(*p.machine) : kDescribedGpu;
    if (!p.here) here.emplace(gpu);
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

// With the settings that the search leaves alone, then with those that it chooses.
static std::string command_of(const Search& found, const PlanRequest& request) {
    if (found.best.empty()) return "";
    std::set<std::string> chosen;
    for (const auto& [key, value] : settings_of(found.best.front())) chosen.insert(key);
    auto others = request.settings;
    std::erase_if(others, [&](const auto& setting) { return chosen.contains(setting.first); });
    return with_settings(request.program, others) + " " + options_of(found.best.front());
}

// measured: of this machine, else empty.
static int print_counts(const CountedSearch& found, const Machine& machine, const std::string& measured,
                        const ClusterConfig& limits, const PlanRequest& request) {
    const std::string command = command_of(found.search, request);
    if (request.json)
        print("{}\n", to_text(json_of(found.search, command)));
    else
        print("{}{}", counts_text(found, limits, machine, command), measured);
    return kExitDone;
}

static int print_search(const Search& found, const Machine& machine, const std::string& measured,
                        const PlanRequest& request) {
    const std::string command = command_of(found, request);
    if (request.json)
        print("{}\n", to_text(json_of(found, command)));
    else
        print("{}{}", search_text(found, machine, command), measured);
    return kExitDone;
}

static int search_this_machine(const Config& cfg, const PlanRequest& request) {
    const int ranks = cfg.parallel.ranks;
    if (ranks > 0) {
        const HereSearch here = search_here(cfg, ranks);
        return print_search(here.search, here.machine, here.measured, request);
    }
    const HereCounts here = search_counts_here(cfg);
    return print_counts(here.counts, here.machine, here.measured, cfg.cluster, request);
}

static int search_on(const Machine& machine, const Config& cfg, const PlanRequest& request) {
    const int ranks = cfg.parallel.ranks;
    if (ranks > 0) return print_search(search(cfg, ranks, machine, estimate), machine, "", request);
    return print_counts(search_counts(cfg, machine, estimate), machine, "", cfg.cluster, request);
}

int plan(Config cfg, const PlanRequest& request) {
    if (launcher().rank > 0) return kExitDone;
    CHECK_INPUT(!request.search || cfg.cluster.named(),
                "--plan=search compares times: name the GPU by "
                "--cluster.gpu ({}) or by --cluster.file",
                machine_names());
    if (!request.search) return print_plan(planned(cfg), request.json);
    std::optional<Machine> machine;
    if (!cfg.cluster.measured()) machine = machine_of(cfg.cluster);
    check_steps(cfg);
    take_open_settings(cfg);
    return machine ? search_on(*machine, cfg, request) : search_this_machine(cfg, request);
}

}  // namespace PRECISION
