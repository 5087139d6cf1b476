// What of train/plan/measured_search.h depends on no precision.
#include <algorithm>
#include <map>
#include <set>

#include "llmc/train/plan/measured_search.h"

static constexpr int kRow = 512, kVocab = 4096;  // tokens of a row, ids: of models that are measured, at most
static constexpr int kTokens = 1024;             // of the larger micro-batch, at most

// A step of the mesh of `of`: a micro-batch for each stage.
static Config small_model(const Config& of, int ranks, int micro_batch) {
    Config c = of;
    ModelConfig& m = c.model;
    const bool alike = m.window.size() == 1 && m.value_embeddings == ValueEmbeddings::None &&
                       m.shortcut == Shortcut::None;
    m.layers = std::min(m.layers, (alike ? 1 : 2) * c.parallel.pp);
    m.context = std::min(m.context, kRow);
    m.vocab = std::min(m.vocab, kVocab);
    const int dp = mesh_shape(c.parallel, ranks).dp;
    c.parallel.zero = dp > 1 ? 1 : 0;
    c.memory = {};
    c.train.micro_batch = micro_batch;
    c.train.batch_tokens = int64_t(m.context) * micro_batch * dp * c.parallel.pp;
    return c;
}

std::vector<Config> models_to_measure(const std::vector<Config>& candidates, int ranks) {
    std::vector<Config> found;
    if (candidates.empty()) return found;
    std::set<std::pair<int, int>> meshes;       // tp and pp: tp alone, or pp with the fewest tp ranks
    std::set<int> stages, batches;
    for (const Config& c : candidates) {
        batches.insert(c.train.micro_batch);
        const ParallelConfig& p = c.parallel;
        if (p.virtual_stages > 1) continue;
        if (p.pp > 1 && !stages.insert(p.pp).second) continue;
        if (meshes.insert({p.tp, p.pp}).second) found.push_back(small_model(c, ranks, 1));
    }
    for (Config& c : found) {
        const int least = *batches.begin();
        c.train.batch_tokens *= least;
        c.train.micro_batch = least;
    }
    const int row = found.front().model.context;
    const auto larger = std::find_if(batches.rbegin(), batches.rend(),
                                     [&](int B) { return int64_t(B) * row <= kTokens; });
    if (larger == batches.rend() || *larger == *batches.begin()) return found;
    found.push_back(small_model(found.front(), ranks, *larger));
    return found;
}

// Ranks that are threads copy while they wait. So the collectives of an axis share the time of its waits by
// their bytes, and the waits take none.
static std::vector<MeasuredOp> without_waits(std::vector<MeasuredOp> ops) {
    std::map<std::pair<std::string, std::string>, std::pair<double, double>> of;        // seconds, bytes
    for (const MeasuredOp& op : ops) {
        auto& [seconds, bytes] = of[{op.name, op.axis}];
        if (op.axis.empty() || (op.kind != Kind::Wait && op.kind != Kind::Collective)) continue;
        seconds += op.calls * op.seconds;
        if (op.kind == Kind::Collective) bytes += op.calls * op.work();
    }
    for (MeasuredOp& op : ops) {
        const auto [seconds, bytes] = of[{op.name, op.axis}];
        if (bytes == 0) continue;
        if (op.kind == Kind::Collective) op.seconds = seconds * op.work() / bytes;
        if (op.kind == Kind::Wait) op.seconds = 0;
    }
    return ops;
}

MeasuredStep MeasuredMeshes::of_stages(int pp) const {
    MeasuredStep all = steps.front().second;
    all.ops.clear();
    for (const auto& [cfg, step] : steps)
        if (cfg.parallel.pp == pp) merge(all.ops, without_waits(step.ops), pp > 1);
    const size_t own = all.ops.size();
    for (const auto& [cfg, step] : steps) {
        if (cfg.parallel.pp == pp) continue;
        for (const MeasuredOp& op : without_waits(step.ops)) {
            const auto known =
                std::find_if(all.ops.begin(), all.ops.end(), [&](const MeasuredOp& o) { return o.is(op); });
            if (known == all.ops.end())
                all.ops.push_back(op);
            else if (size_t(known - all.ops.begin()) >= own)
                known->seconds = std::min(known->seconds, op.seconds);
        }
    }
    return all;
}
