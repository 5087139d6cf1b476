#include "llmc/train/plan/plan.h"

#include <set>

#include "llmc/base/config/config.h"
#include "llmc/base/config/options.h"
#include "llmc/base/config/sharding.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/plan/print.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/run/run_memory.h"

namespace PRECISION::inline plans {

// The device of a plan, until the end of the scope.
namespace {
struct PlannedDevice {
    Target gpu = kDescribedGpu;
    std::optional<Described> described = {};
    explicit PlannedDevice(const Planned& p) {
        if (p.machine) gpu = described_gpu(*p.machine);
        if (!p.here) described.emplace(gpu);
    }
};

// Settings with which a plan fits that does not fit as it is.
struct Remedy {
    Settings settings = {};
    size_t bytes = 0;           // of the fullest rank
};
}  // namespace

// The memory plan of the fullest rank: ranks of different stages differ, no others.
static std::string memory_text(const Planned& p) {
    const PlannedDevice here(p);
    const Config& own = p.estimate.cfg;
    const Config cfg = p.here ? own : over_nccl(own);
    std::string text;
    size_t most = 0;
    for (const int stage : distinct_stages(cfg).stages) {
        const auto rank = described_stage(cfg.parallel, p.estimate.ranks, stage);
        const Model model(cfg, rank->mesh, cfg.train.micro_batch, writes_texts(cfg));
        if (model.bytes() <= most) continue;
        most = model.bytes();
        text = plan_text(cfg, model);
    }
    return text;
}

// Every combination of ZeRO stage, offload and recompute level at or above those of cfg, the cheaper first,
// with one sequence at once.
static std::vector<Config> smaller_plans(Config cfg, int ranks, bool on_gpu) {
    std::vector<Config> all;
    cfg.train.micro_batch = 1;
    const int last_zero = mesh_shape(cfg.parallel, ranks).dp > 1 ? int(std::size(kZeroStages)) - 1 : 0;
    const Config as_it_is = cfg;
    for (const Offload offload : values_of<Offload>())
        for (int zero = as_it_is.parallel.zero; zero <= std::max(as_it_is.parallel.zero, last_zero); zero++)
            for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block}) {
                if (level < as_it_is.memory.recompute || offload < as_it_is.memory.offload) continue;
                if (offload != Offload::None && !on_gpu) continue;
                if (offloads_weights(offload) && cfg.parallel.pp > 1) continue;
                cfg.memory.offload = offload;
                cfg.parallel.zero = zero;
                all.push_back(with_recompute(cfg, level));
            }
    return all;
}

// The settings of a smaller plan that differ from those of the config.
static Settings changed_settings(const Config& cfg, const Config& before, int ranks, int ranks_before) {
    Settings changed;
    const auto add = [&](const char* key, const auto& now, const auto& then, const std::string& text) {
        if (!(now == then)) changed.emplace_back(key, text);
    };
    const auto number = [](int n) { return std::to_string(n); };
    add("parallel.ranks", ranks, ranks_before, number(ranks));
    add("parallel.zero", cfg.parallel.zero, before.parallel.zero, number(cfg.parallel.zero));
    add("train.micro_batch", cfg.train.micro_batch, before.train.micro_batch, number(cfg.train.micro_batch));
    add("parallel.schedule", cfg.parallel.schedule, before.parallel.schedule, cfg.parallel.schedule.text());
    add("memory.recompute", cfg.memory.recompute, before.memory.recompute, cfg.memory.recompute.text());
    add("memory.offload", cfg.memory.offload, before.memory.offload, cfg.memory.offload.text());
    return changed;
}

// Bytes of the fullest rank; none where the batch does not divide.
static std::optional<size_t> bytes_of(const Config& cfg, int ranks) {
    if (!batch_divides(cfg, mesh_shape(cfg.parallel, ranks).dp, cfg.train.micro_batch)) return {};
    return memory_estimate(cfg, ranks).memory.sum();
}

// The first smaller plan that fits: on as many ranks; else the smallest, on the fewest GPUs by doubling.
static Remedy remedy_of(const Planned& p) {
    constexpr int kMostRanks = 16384;
    const PlannedDevice here(p);
    const Config& own = p.estimate.cfg;
    const Config planned = p.here ? own : over_nccl(own);
    const bool on_gpu = !p.here || !ops::reached_by_host();
    const auto fitting = [&](const Config& cfg, int ranks) -> Remedy {
        const size_t bytes = bytes_of(cfg, ranks).value_or(SIZE_MAX);
        if (bytes > p.available) return {};
        return {changed_settings(cfg, own, ranks, p.estimate.ranks), bytes};
    };
    const std::vector<Config> smaller = smaller_plans(planned, p.estimate.ranks, on_gpu);
    // the least of each kind of offload: streams of all micro-batches lie on the device with weights
    const bool any = std::ranges::any_of(values_of<Offload>(), [&](Offload o) {
        const auto last = std::find_if(smaller.rbegin(), smaller.rend(),
                                       [&](const Config& c) { return c.memory.offload == o; });
        return last != smaller.rend() && fitting(*last, p.estimate.ranks).bytes;
    });
    if (any)
        for (const Config& tried : smaller)
            if (Remedy found = fitting(tried, p.estimate.ranks); found.bytes) return found;
    for (int ranks = 2 * p.estimate.ranks; !p.here && ranks <= kMostRanks; ranks *= 2) {
        Config smallest = smaller.back();
        smallest.parallel.zero = int(std::size(kZeroStages)) - 1;
        smallest.memory.offload = own.memory.offload;
        if (Remedy found = fitting(smallest, ranks); found.bytes) return found;
    }
    return {};
}

// "fits: 14.5 of 24.0 GB of a rtx4090"; where it does not, what would, on a second line.
static std::string verdict_text(const Planned& p) {
    const size_t needs = p.estimate.memory.sum();
    const std::string rank = p.estimate.ranks > 1 ? " on a rank" : "";
    const std::string place = p.here ? "available on this machine" : "of a " + p.machine->gpu;
    if (!p.available) return fmt::format("needs {}{}\n", human_bytes(double(needs)), rank);
    const std::string of = fmt::format("{} of {}{} {}", human_bytes(double(needs)),
                                       human_bytes(double(p.available)), rank, place);
    if (p.estimate.fits) return fmt::format("fits: {}\n", of);
    const Remedy remedy = remedy_of(p);
    if (remedy.settings.empty())
        return fmt::format("does not fit: {}\n  {}: make the model or its context smaller, or {}\n", of,
                           "no ZeRO stage, recompute level or micro-batch fits",
                           p.here ? "plan for GPUs: --cluster.gpu=h100 --parallel.ranks=8"
                                  : "split it: --plan=search --parallel.ranks=N tries tp and pp");
    return fmt::format("does not fit: {}\n  fits with{}: {}\n", of, with_settings("", remedy.settings),
                       human_bytes(double(remedy.bytes)));
}

static int print_plan(const Planned& p, const PlanRequest& request) {
    const Estimate& e = p.estimate;
    if (request.json) {
        Json plan = json_of(e, p.machine.has_value());
        std::get<Json::Members>(plan.value).emplace_back("settings", parse_json(to_json(e.cfg)));
        print("{}\n", to_text(plan));
        return kExitDone;
    }
    print("{}\n{}\n", verdict_text(p), memory_text(p));
    if (p.machine) print("{}{}\n", time_text(e, *p.machine), p.measured);
    if (request.full) print("{}\n", to_json(e.cfg));
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

// The meshes of parallel.ranks ranks; with 0, the fastest mesh of each number.
static int print_meshes(const Config& cfg, const Machine& machine, const PlanRequest& request) {
    const int ranks = cfg.parallel.ranks;
    CountedSearch found;
    if (ranks > 0) found.search = search(cfg, ranks, machine, estimate);
    else found = search_counts(cfg, machine, estimate);
    const std::string command = command_of(found.search, request);
    if (request.json) print("{}\n", to_text(json_of(found.search, command)));
    else if (ranks > 0) print("{}", search_text(found.search, machine, command));
    else print("{}", counts_text(found, cfg.cluster, machine, command));
    return kExitDone;
}

int plan(Config cfg, const PlanRequest& request) {
    if (launcher().rank > 0) return kExitDone;
    if (!request.search) return print_plan(planned(cfg), request);
    CHECK_INPUT(cfg.cluster.named() && !cfg.cluster.measured(),
                "--plan=search compares times of GPUs: name them by --cluster.gpu ({}) or --cluster.file",
                machine_names());
    const Machine machine = machine_of(cfg);
    check_steps(cfg);
    take_open_settings(cfg);
    return print_meshes(cfg, machine, request);
}

}  // namespace PRECISION::plans
