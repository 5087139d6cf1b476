// Muon's share of a step: predicted by the walk's FLOPs, and measured.
#pragma once
#include <string>
#include <vector>

#include "dev/bench_models.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/state_source.h"

namespace PRECISION {
namespace {

// Costs of a step's ops, and of Muon's among them. Muon's ops follow gradient_state, as does the AdamW update
// of other tensors.
struct MuonCosts {
    double flops = 0, muon_flops = 0, seconds = 0, muon_seconds = 0;

    MuonCosts() = default;
    MuonCosts(const Walk& walk, double end) {
        bool updates = false;
        for (size_t i = 0; i < walk.entries.size(); i++) {
            const Cost& c = walk.of(walk.entries[i]);
            const std::string name = c.name;
            const double took =
                walk.computes ? (i + 1 < walk.begun.size() ? walk.begun[i + 1] : end) - walk.begun[i] : 0;
            const bool muon = updates && name != "adamw_update" && c.kind != Kind::Wait;
            flops += c.flops, seconds += took;
            if (muon) muon_flops += c.flops, muon_seconds += took;
            updates |= name == "gradient_state";
        }
    }
    // Of a step with `times` as many tokens: the update stays.
    double share(double times) const { return muon_flops / (muon_flops + times * (flops - muon_flops)); }
    double share_of_time(double times) const {
        return muon_seconds / (muon_seconds + times * (seconds - muon_seconds));
    }
};

// The median of a few steps by Muon's share; the first step touches memory for the first time.
MuonCosts muon_costs(Config cfg, int64_t tokens, int steps) {
    cfg.optimizer.kind = OptimizerKind::Muon;
    cfg.train.batch_tokens = tokens;
    const Dataset text = random_tokens(cfg.model, size_t(tokens) * 2 + 1);
    Model model(cfg, Mesh(), cfg.train.micro_batch, false);
    warm_up(cfg, model);
    model.allocate();
    restore(model.shards, random_weights(model.shards.d, 1));
    Loader data(text, cfg.train.micro_batch, 0);
    std::vector<MuonCosts> costs;
    for (int step = 0; step < steps; step++) {
        double end = 0;
        const Walk walk = walk_of(ops::target(), [&] {
            model.pipeline.run(data);
            enqueue_update(model, 1e-4, step);
            model.statistics->read();
            end = seconds_now();
        }, true);
        costs.push_back(MuonCosts(walk, end));
    }
    costs.erase(costs.begin());
    std::nth_element(costs.begin(), costs.begin() + int64_t(costs.size() / 2), costs.end(),
                     [](const MuonCosts& a, const MuonCosts& b) {
                         return a.share_of_time(1) < b.share_of_time(1);
                     });
    return costs[costs.size() / 2];
}

// A step of 65,536 tokens of the 124M takes minutes: its share follows from the costs of a step of 2,048.
void muon_shares(const Options& o, const char* precision, FILE* json) {
    constexpr int64_t kFew = 2048, kMany = 65536;
    Options of_llama = o;
    of_llama.model = "llama", of_llama.B = 8, of_llama.T = 256;
    const MuonCosts llama = muon_costs(config_of(of_llama), kFew, 3);
    const MuonCosts few = muon_costs(config_of_quickstart(), kFew, 12);
    const MuonCosts many = muon_costs(config_of_quickstart(), kMany, 3);
    std::vector<std::vector<std::string>> cells = {
        {"Muon's share", "tokens", "of FLOPs", "of time", "Muon", "step"}};
    const auto add = [&](const char* model, int64_t tokens, const MuonCosts& p, double times) {
        const double muon = p.muon_seconds, step = muon + times * (p.seconds - muon);
        cells.push_back({model, grouped(tokens), fmt::format("{:.1f}%", 100 * p.share(times)),
                         fmt::format("{:.1f}%", 100 * p.share_of_time(times)),
                         fmt::format("{:.1f} ms", muon * 1e3), fmt::format("{:.1f} ms", step * 1e3)});
        if (!json) return;
        JsonLine line("muon");
        line.add("precision", precision).add("model", model).add("tokens", tokens);
        line.add("of_flops", p.share(times)).add("of_time", p.share_of_time(times));
        line.add("muon_ms", muon * 1e3).add("step_ms", step * 1e3);
        fputs(line.str().c_str(), json);
    };
    add("llama, 768 channels", kFew, llama, 1);
    add("the same, from its parts", kMany, llama, double(kMany) / kFew);
    add("quickstart, 192 channels", kFew, few, 1);
    add("the same", kMany, many, 1);
    printf("\n%s, %d threads, polynomial polar\n\n", precision, context.threads);
    fputs(table(cells, "lrrrrr").c_str(), stdout);
}

}  // namespace
}  // namespace PRECISION
