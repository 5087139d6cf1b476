#include "llmc/train/plan/estimate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "llmc/base/config/sharding.h"
#include "llmc/base/context.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/log/step_meter.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/rank_state.h"

namespace PRECISION::inline plans {

static size_t& bytes_for(BytesByPurpose& memory, Purpose purpose) {
    switch (purpose) {
    case Purpose::Weights: return memory.weights;
    case Purpose::Gradients: return memory.gradients;
    case Purpose::Optimizer: return memory.optimizer;
    case Purpose::Activations: return memory.activations;
    case Purpose::Other: break;
    }
    return memory.other;
}

static BytesByPurpose memory_of(const Model& model) {
    BytesByPurpose memory;
    for (const Arena::Row& row : model.arena.plan()) bytes_for(memory, row.purpose) += row.bytes;
    memory.other += model.bytes() - memory.sum();  // of libraries, and while kernels are tuned
    return memory;
}

static Estimate without_figures(const Config& cfg, int ranks) {
    return {.cfg = cfg, .mesh = mesh_shape(cfg.parallel, ranks), .ranks = ranks, .memory = {}, .step = {}};
}

static Model model_of_stage(const Config& cfg, const Mesh& mesh, int micros = 0) {
    return Model(cfg, mesh, cfg.train.micro_batch, writes_texts(cfg), micros);
}

// Returns the bytes of the model's rank.
static size_t add_memory(Estimate& e, const Model& model) {
    const BytesByPurpose memory = memory_of(model);
    if (memory.sum() > e.memory.sum()) e.memory = memory;
    e.params = int64_t(model.shards.layout.parameters);
    return memory.sum();
}

static std::vector<size_t> each_of(const DistinctStages& distinct, const std::vector<size_t>& bytes) {
    std::vector<size_t> all;
    for (const size_t i : distinct.of) all.push_back(bytes[i]);
    return all;
}

Estimate memory_estimate(const Config& cfg, int ranks) {
    Estimate e = without_figures(cfg, ranks);
    const DistinctStages distinct = distinct_stages(cfg);
    std::vector<size_t> bytes;
    for (const int s : distinct.stages) {
        const auto rank = described_stage(cfg.parallel, ranks, s);
        bytes.push_back(add_memory(e, model_of_stage(cfg, rank->mesh)));
    }
    e.memory_of_stages = each_of(distinct, bytes);
    return e;
}

// Every stage of a mesh, by the walks of those that stand for all.
namespace {
struct WalkedStages {
    PipelineShape shape = {};
    std::vector<StageTimes> times = {};
    std::vector<std::vector<size_t>> copies = {};  // of the pipeline: for each stage, its place in `times`
    RankShare saved = {};                          // of the rank that writes most of a checkpoint

    std::vector<const StageTimes*> stages(const std::vector<size_t>& copy) const {
        std::vector<const StageTimes*> all;
        for (const size_t i : copy) all.push_back(&times[i]);
        return all;
    }
};

struct WalkedStage {
    Walk walk;
    std::vector<Action> actions;
    int micros;
};
}  // namespace

// Micro-batches of a walk for the time of a step. Where gradients are sharded, collectives go on from one
// action to the next: then the walk has the pipeline's filling, a whole repetition, and its emptying.
static int timed_micros(const Estimate& e, const PipelineShape& shape) {
    if (!sharding_of(e.cfg.parallel.zero, e.mesh.shard).grads) return walked_micros(shape);
    const bool groups = shape.chunks > 1 && !shape.layers;
    return std::min(shape.micros, groups ? 3 * shape.stages : 2 * shape.stages + 2);
}

// On the device of this thread, one of each kind. e: gets the memory.
static std::vector<WalkedStage> walk_distinct(const DistinctStages& distinct, WalkedStages& walked,
                                              Estimate& e) {
    std::vector<WalkedStage> stages;
    std::vector<size_t> bytes;
    for (const int s : distinct.stages) {
        const auto rank = described_stage(e.cfg.parallel, e.ranks, s);
        walked.shape = make_stage(e.cfg, rank->mesh, e.cfg.train.micro_batch).shape;
        PipelineShape few = walked.shape;
        few.micros = timed_micros(e, walked.shape);
        Model model = model_of_stage(e.cfg, rank->mesh, few.micros);
        bytes.push_back(add_memory(e, model));
        const RankShare share = share_to_save(model.shards);
        if (share.bytes > walked.saved.bytes) walked.saved = share;
        stages.push_back({std::move(model.step), pipeline_schedule(few, s), few.micros});
    }
    e.memory_of_stages = each_of(distinct, bytes);
    return stages;
}

static WalkedStages walk_stages(Prices prices, Estimate& e) {
    const DistinctStages distinct = distinct_stages(e.cfg);
    WalkedStages walked;
    const std::vector<WalkedStage> stages = walk_distinct(distinct, walked, e);
    std::map<std::pair<size_t, StagePlace>, size_t> known;  // places in walked.times
    for (const std::vector<StagePlace>& places : distinct_copies(prices.mesh, prices.machine)) {
        std::vector<size_t>& copy = walked.copies.emplace_back();
        for (size_t s = 0; s < places.size(); s++) {
            const size_t i = distinct.of[s];
            const auto [it, fresh] = known.try_emplace({i, places[s]}, walked.times.size());
            copy.push_back(it->second);
            if (!fresh) continue;
            prices.groups = &places[s].groups;
            const StageTimes t = stage_times(prices, stages[i].walk, stages[i].actions, stages[i].micros);
            walked.times.push_back(at_stage(t, places[s].near, distinct.stages[i], walked.shape.stages));
        }
    }
    return walked;
}

// Equally slow: the one whose busiest stage works longer.
static bool slower(const StepTime& a, const StepTime& b) {
    constexpr double kEqual = 1e-9;
    if (std::abs(a.seconds - b.seconds) > kEqual * b.seconds) return a.seconds > b.seconds;
    return a.by_kind.sum() > b.by_kind.sum();
}

// The stages of the slowest copy.
static std::vector<const StageTimes*> slowest_copy(const WalkedStages& walked) {
    std::vector<const StageTimes*> slowest = walked.stages(walked.copies.front());
    if (walked.copies.size() == 1) return slowest;
    StepTime most;
    for (const std::vector<size_t>& copy : walked.copies) {
        const std::vector<const StageTimes*> stages = walked.stages(copy);
        const StepTime time = step_time(walked.shape, stages);
        if (!slower(time, most)) continue;
        slowest = stages;
        most = time;
    }
    return slowest;
}

static void add_goodput(Estimate& e, const Machine& machine, const RankShare& saved) {
    const LongRun run = {.ranks = e.ranks, .steps = e.cfg.train.steps, .step_seconds = e.step.seconds,
                         .saved_bytes = saved.bytes, .offloaded_bytes = saved.offloaded,
                         .async = e.cfg.checkpoint.async};
    e.goodput = goodput(run, machine, e.cfg.checkpoint.every);
    e.best_goodput = goodput(run, machine, best_checkpoint_every(run, machine));
}

static Estimate timed_estimate(const Config& cfg, int ranks, const Prices& prices) {
    Estimate e = without_figures(cfg, ranks);
    const WalkedStages walked = walk_stages(prices, e);
    e.step = step_time(walked.shape, slowest_copy(walked));
    e.fits = double(e.memory.sum()) <= 1e9 * prices.machine.memory_gb;
    // nobody knows how often this machine fails, unless a setting says so
    if (!prices.measured || cfg.cluster.failure_hours > 0)
        add_goodput(e, prices.machine, walked.saved);
    const double flops = model_flops_per_token(cfg.model, e.params) * e.tokens_per_second();
    e.mfu = flops / (1e12 * prices.peak_tflops() * ranks);
    return e;
}

static Prices prices_of(const Config& cfg, int ranks, const Machine& machine) {
    const ParallelConfig& p = cfg.parallel;
    const bool by_library = p.reduce == ReduceOrder::Native ||
                            (p.reduce == ReduceOrder::Auto && p.transport == TransportKind::Nccl);
    return {.machine = machine, .bf16 = sizeof(floatX) == 2,
            .native = by_library && p.reduce_dtype == ReduceDtype::Fp32, .mesh = mesh_shape(p, ranks)};
}

Estimate estimate(const Config& cfg, int ranks, const Machine& machine) {
    const Target gpu = described_gpu(machine);
    const Described here(gpu);
    const Config planned = over_nccl(cfg);
    Estimate e = timed_estimate(planned, ranks, prices_of(planned, ranks, machine));
    e.cfg = cfg;
    return e;
}

DrawnStep drawn_step(const Config& cfg, int ranks, const Machine& machine) {
    const Target gpu = described_gpu(machine);
    const Described here(gpu);
    const Config planned = over_nccl(cfg);
    Estimate e = without_figures(planned, ranks);
    const WalkedStages walked = walk_stages(prices_of(planned, ranks, machine), e);
    return draw_step(walked.shape, slowest_copy(walked));
}

Estimate measured_estimate(const Config& cfg, int ranks, const Machine& machine,
                           const MeasuredStep& measured) {
    Prices prices = prices_of(cfg, ranks, machine);
    prices.measured = &measured;
    return timed_estimate(cfg, ranks, prices);
}

}  // namespace PRECISION::plans
