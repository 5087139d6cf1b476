// The plans that a search chooses from (search.h).
#include <algorithm>

#include "llmc/model/gpu_sizes.h"
#include "llmc/train/plan/search.h"

inline namespace plans {

static std::vector<int> divisors(int64_t n, int64_t most) {
    std::vector<int> all;
    for (int d = 1; d <= std::min(n, most); d++)
        if (n % d == 0) all.push_back(d);
    return all;
}

static constexpr int kLargestMicroBatch = 1024;

static std::vector<int> micro_batches_of(const Config& cfg, int dp) {
    std::vector<int> found;
    const int64_t rows = rows_of_step(cfg, dp);
    for (int B = 1; B <= std::min<int64_t>(rows, kLargestMicroBatch); B++)
        if (batch_divides(cfg, dp, B)) found.push_back(B);
    return found;
}

// One, and several for interleaved, with chunks of equally many layers.
static std::vector<int> virtual_stages_of(const Config& cfg, int pp) {
    std::vector<int> found = {1};
    for (int v = 2; pp > 1 && v * pp <= cfg.model.layers && v <= 8; v++)
        if (cfg.model.layers % (v * pp) == 0) found.push_back(v);
    return found;
}

// A single stage has one list, whatever the schedule.
static std::vector<PipelineSchedule> schedules_of(int pp, int chunks) {
    std::vector<PipelineSchedule> found = values_of<PipelineSchedule>();
    std::erase_if(found, [&](PipelineSchedule s) { return has_chunks(s) != (chunks > 1); });
    if (pp == 1) found.resize(1, PipelineSchedule::OneFOneB);
    return found;
}

static std::vector<Config> pipelines_of(Config cfg) {
    ParallelConfig& p = cfg.parallel;
    std::vector<Config> found;
    for (const int chunks : virtual_stages_of(cfg, p.pp))
        for (const PipelineSchedule schedule : schedules_of(p.pp, chunks)) {
            p.virtual_stages = chunks;
            p.schedule = schedule;
            found.push_back(cfg);
        }
    return found;
}

// What ZeRO may shard, and over how many ranks: all of dp (0), or those of a node, whose links are faster.
struct ZeroChoice {
    int zero, group;
};

static std::vector<ZeroChoice> zeros_of(const ParallelConfig& p, int ranks, const Machine& machine) {
    const MeshShape mesh = mesh_shape(p, ranks);
    std::vector<ZeroChoice> found = {{.zero = 0, .group = 0}};
    if (mesh.shard == 1) return found;
    const int inside = members_of(mesh, "shard", machine).inside;
    const bool nodes = inside > 1 && inside < mesh.shard && mesh.shard % inside == 0;
    for (int zero = 1; zero < int(std::size(kZeroStages)); zero++) {
        found.push_back({.zero = zero, .group = 0});
        if (nodes) found.push_back({.zero = zero, .group = inside});
    }
    return found;
}

static void add_candidates(std::vector<Config>& all, const Config& mesh, int ranks, const Machine& machine) {
    const std::vector<ZeroChoice> zeros = zeros_of(mesh.parallel, ranks, machine);
    for (Config& cfg : pipelines_of(mesh))
        for (const int B : micro_batches_of(cfg, mesh_shape(mesh.parallel, ranks).dp))
            for (const auto& [zero, group] : zeros)
                for (const Recompute level : {Recompute::None, Recompute::Selective, Recompute::Block}) {
                    cfg.parallel.zero = zero;
                    cfg.parallel.zero_group = group;
                    cfg.train.micro_batch = B;
                    cfg.memory.recompute = level;
                    if (halves_mistake(cfg).empty()) all.push_back(cfg);
                }
}

// Ranks that share a row have at least so many of its tokens: attention is too small a part of shorter ones.
static constexpr int kLeastOfRow = 8192;

// Each choice of sizes, in the order of the rows of axes.
static std::vector<ParallelConfig> meshes_of(ParallelConfig p, int ranks, int context,
                                             const Machine& machine) {
    for (const AxisRow& a : axis_rows)
        if (a.setting) p.*a.setting = 1;
    std::vector<ParallelConfig> meshes = {p}, longer;
    for (const AxisRow& a : axis_rows) {
        if (!a.setting) continue;
        longer.clear();
        int most = a.nodes ? a.nodes * machine.gpus_per_node : ranks;
        if (&a == &axis_rows[kCp]) most = std::max(1, context / kLeastOfRow);
        for (ParallelConfig& mesh : meshes)
            for (const int size : divisors(ranks / model_ranks(mesh), most)) {
                mesh.*a.setting = size;
                longer.push_back(mesh);
                mesh.*a.setting = 1;
            }
        meshes.swap(longer);
    }
    return meshes;
}

std::vector<Config> candidates_of(const Config& cfg, int ranks, const Machine& machine) {
    std::vector<Config> all;
    Config c = cfg;
    c.parallel.ranks = ranks;
    c.parallel.zero_group = 0;
    c.parallel.virtual_stages = 1;
    for (const ParallelConfig& p : meshes_of(c.parallel, ranks, cfg.model.context, machine)) {
        c.parallel = p;
        if (p.tp > 1 && !ffn_fits(cfg.model, p.tp, kDescribedGpu.product_unit())) continue;
        if (mesh_mistake(p, c.model, ranks).empty() && fp8_mistake(c).empty())
            add_candidates(all, c, ranks, machine);
    }
    return all;
}

}  // namespace plans
