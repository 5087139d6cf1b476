#include "llmc/train/plan/estimate.h"

#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/run/model.h"
#include "llmc/train/run/step_meter.h"

namespace PRECISION {

static size_t MemoryParts::*purpose(const std::string& name) {
    const auto has = [&](const char* word) { return name.find(word) != name.npos; };
    if (has("master") || has("moments") || has("momentum") || has("offloaded"))
        return &MemoryParts::optimizer;
    if (has("gradients")) return &MemoryParts::gradients;
    if (has("weights") || has("gathered")) return &MemoryParts::weights;
    for (const char* word : {"activations", "block scratch", "final norm", "logits", "losses", "stream",
                             "tokens", "generation", "tasks"})
        if (has(word)) return &MemoryParts::activations;
    return &MemoryParts::other;
}

static MemoryParts memory_of(const Model& model) {
    MemoryParts parts;
    for (const Arena::Row& row : model.arena.plan()) parts.*purpose(row.name) += row.bytes;
    parts.other += model.bytes() - parts.sum();  // of libraries, and while kernels are tuned
    return parts;
}

// The stages of a mesh whose walks stand for all: the first, the last, and one of each number of blocks
// between.
struct Distinct {
    std::vector<int> stages;  // to walk
    std::vector<size_t> of;   // for each stage: its place in `stages`
};

static Distinct distinct_stages(const Config& cfg) {
    const int pp = cfg.parallel.pp, chunks = cfg.parallel.virtual_stages;
    Distinct d;
    std::vector<std::vector<int>> seen;
    for (int s = 0; s < pp; s++) {
        std::vector<int> blocks = {s == 0, s == pp - 1};
        for (const Chunk& c : make_part(cfg.model.layers, s, pp, chunks).chunks)
            blocks.push_back(c.end - c.begin);
        const auto it = std::find(seen.begin(), seen.end(), blocks);
        d.of.push_back(size_t(it - seen.begin()));
        if (it == seen.end()) seen.push_back(blocks), d.stages.push_back(s);
    }
    return d;
}

static Estimate without_figures(const Config& cfg, int ranks) {
    return {.cfg = cfg, .mesh = mesh_shape(cfg.parallel, ranks), .ranks = ranks, .memory = {}, .step = {}};
}

static Model model_of_stage(const Config& cfg, const Mesh& mesh) {
    return Model(cfg, mesh, cfg.train.micro_batch, writes_texts(cfg));
}

static void add_memory(Estimate& e, const Model& model) {
    const MemoryParts memory = memory_of(model);
    if (memory.sum() > e.memory.sum()) e.memory = memory;
    e.params = int64_t(model.zero.layout.parameters);
}

Estimate memory_estimate(const Config& cfg, int ranks) {
    Estimate e = without_figures(cfg, ranks);
    for (const int s : distinct_stages(cfg).stages) {
        const auto rank = described_mesh(cfg.parallel, ranks, s * cfg.parallel.tp);
        add_memory(e, model_of_stage(cfg, rank->mesh));
    }
    return e;
}

// Of a mesh on the device of this thread.
static Estimate timed_estimate(const Config& planned, int ranks, const Machine& machine,
                               const MeasuredStep* measured) {
    Estimate e = without_figures(planned, ranks);
    const Prices prices = {
        .machine = machine, .bf16 = sizeof(floatX) == 2, .mesh = e.mesh, .measured = measured};
    const Distinct distinct = distinct_stages(planned);
    std::vector<StageTimes> times;
    PipelineShape shape = {};
    for (const int s : distinct.stages) {
        const auto rank = described_mesh(planned.parallel, ranks, s * planned.parallel.tp);
        const Model model = model_of_stage(planned, rank->mesh);
        add_memory(e, model);
        shape = model.stage.shape;
        PipelineShape few = shape;
        few.micros = walked_micros(shape);
        times.push_back(stage_times(prices, model.step, pipeline_schedule(few, s), few.micros));
    }
    std::vector<const StageTimes*> stages;
    for (const size_t i : distinct.of) stages.push_back(&times[i]);
    e.step = step_time(shape, stages);
    e.fits = double(e.memory.sum()) <= 1e9 * machine.memory_gb;
    const double flops = model_flops_per_token(planned.model, e.params) * e.tokens_per_second();
    e.mfu = flops / (1e12 * prices.peak_tflops() * ranks);
    return e;
}

Estimate estimate(const Config& cfg, int ranks, const Machine& machine) {
    const Described gpu(kDescribedGpu);
    Config planned = cfg;
    planned.parallel.transport = TransportKind::Nccl;
    Estimate e = timed_estimate(planned, ranks, machine, nullptr);
    e.cfg = cfg;
    return e;
}

Estimate measured_estimate(const Config& cfg, int ranks, const Machine& machine,
                           const MeasuredStep& measured) {
    return timed_estimate(cfg, ranks, machine, &measured);
}

}  // namespace PRECISION
