// Estimates of small meshes, against brute force: every rank and every micro-batch walked, none left out.
#include <set>

#include "llmc/comm/transport/launch.h"
#include "llmc/train/plan/search.h"
#include "llmc/train/run/distinct_stages.h"
#include "test/tiny.h"

namespace PRECISION {

static constexpr int kRanks = 8;

static Config planned_config(int sequences = 32) {
    Config cfg;
    cfg.model = {.layers = 4, .heads = 16, .channels = 256, .context = 256, .vocab = 1000, .init = "random"};
    cfg.train = {.steps = 5, .batch_tokens = sequences * 256, .micro_batch = 1, .max_skips = 0};
    cfg.sample.every = 0;
    return cfg;
}

static Machine h100() { return machine_of({.gpu = "h100", .file = ""}); }

static Machine nodes_of_4() {
    Machine m = h100();
    m.gpus_per_node = 4;
    return m;
}

// The step of a copy of the pipeline: of the ranks at these places of dp and tp.
static StepTime step_of_copy(const Config& cfg, const Machine& machine, int dp, int tp,
                             Simulated micros = Simulated::All) {
    const Described gpu(kDescribedGpu);
    Config planned = cfg;
    planned.parallel.transport = TransportKind::Nccl;
    const ParallelConfig& p = planned.parallel;
    const Prices prices = {.machine = machine, .bf16 = kIsBf16, .mesh = mesh_shape(p, kRanks)};
    std::vector<StageTimes> times;
    PipelineShape shape = {};
    for (int s = 0; s < p.pp; s++) {
        const auto rank = described_mesh(p, kRanks, (dp * p.pp + s) * p.tp + tp);
        const Walk walk =
            walk_of_run(planned, rank->mesh, {.micro_batch = cfg.train.micro_batch, .micros = 0});
        const Stage stage = make_stage(planned, rank->mesh, cfg.train.micro_batch);
        shape = stage.shape;
        const StageTimes t = stage_times(prices, walk, stage.actions, shape.micros);
        times.push_back(at_stage(t, near_of(prices, s), s, p.pp));
    }
    std::vector<const StageTimes*> stages;
    for (const StageTimes& t : times) stages.push_back(&t);
    return step_time(shape, stages, micros);
}

// The slowest copy decides. Where groups have copies of the state, only the first sums squares of it.
static double whole_step(const Config& cfg, const Machine& machine) {
    const ParallelConfig& p = cfg.parallel;
    double slowest = 0;
    for (int dp = 0; dp < kRanks / (p.tp * p.pp); dp++)
        for (int tp = 0; tp < p.tp; tp++)
            slowest = std::max(slowest, step_of_copy(cfg, machine, dp, tp).seconds);
    return slowest;
}

static void expect_whole(const Config& c, const Machine& machine, double most) {
    const ParallelConfig& p = c.parallel;
    const double few = estimate(c, kRanks, machine).step.seconds, whole = whole_step(c, machine);
    EXPECT(std::abs(few / whole - 1) < most,
           "tp %d, pp %d x %d, zero %d of %d, micro %d, recompute %s: %g s, whole %g s", p.tp, p.pp,
           p.virtual_stages, p.zero, p.zero_group, c.train.micro_batch, c.memory.recompute.text().c_str(),
           few, whole);
}

// Two nodes: ZeRO over all ranks, and over those of a node; pipelines with borders of both kinds.
TEST(a_few_walks_stand_for_all_ranks_and_micro_batches) {
    const Machine machine = nodes_of_4();
    std::set<int> tp, micro;
    for (const Config& c : candidates_of(planned_config(), kRanks, machine)) {
        tp.insert(c.parallel.tp), micro.insert(c.train.micro_batch);
        // a micro-batch may wait for collectives of the previous micro-batch: not quite like any other
        expect_whole(c, machine, c.parallel.zero < 2 ? 0.01 : 0.03);
    }
    EXPECT(tp == std::set<int>({1, 2, 4, 8}) && *micro.rbegin() == 32, "tp to %d, micro-batch to %d",
           *tp.rbegin(), *micro.rbegin());
}

// 256 sequences, one at once: the pipeline's filling and emptying are simulated, the micro-batches between
// are added.
TEST(many_micro_batches_take_what_a_few_say) {
    const Machine machine = nodes_of_4();
    std::set<int> stages;
    for (const Config& c : candidates_of(planned_config(256), kRanks, machine)) {
        const ParallelConfig& p = c.parallel;
        if (c.train.micro_batch > 1 || c.memory.recompute != Recompute::None || p.zero_group) continue;
        if (p.tp > 1 && p.pp == 1) continue;
        stages.insert(p.pp);
        const double few = step_of_copy(c, machine, 0, 0, Simulated::Few).seconds,
                     all = step_of_copy(c, machine, 0, 0).seconds;
        EXPECT(std::abs(few / all - 1) < 0.003, "pp %d x %d, zero %d: %g s, all simulated %g s", p.pp,
               p.virtual_stages, p.zero, few, all);
        expect_whole(c, machine, p.zero < 2 ? 0.01 : 0.04);
    }
    EXPECT(stages == std::set<int>({1, 2, 4}), "%zu numbers of stages", stages.size());
}

// Stages of equally many blocks take longer with a block that attends to everything, and more memory with a
// value embedding.
TEST(stages_of_different_blocks_are_planned_apart) {
    Config cfg = planned_config();
    cfg.model.layers = 8, cfg.model.context = 2048, cfg.model.window = {16, 16, 0, 16, 16, 16, 16, 16};
    cfg.parallel = {.pp = 8};
    cfg.train.batch_tokens = 8 * 2048;
    const DistinctStages windows = distinct_stages(cfg);
    EXPECT(windows.stages == std::vector<int>({0, 1, 2, 7}) && windows.of[3] == 1, "%zu stages",
           windows.stages.size());
    const double few = estimate(cfg, kRanks, h100()).step.seconds;
    const double whole = whole_step(cfg, h100());
    EXPECT(std::abs(few / whole - 1) < 0.01, "%g s, whole %g s", few, whole);

    cfg.model.window = {0};
    cfg.model.value_embeddings = ValueEmbeddings::Alternate;
    const std::vector<size_t> memory = estimate(cfg, kRanks, h100()).memory_of_stages;
    const size_t table = size_t(cfg.model.vocab) * size_t(cfg.model.channels) * sizeof(floatX);
    for (int s = 2; s < 6; s++)
        EXPECT(memory[size_t(s % 2 ? s : s + 1)] > memory[size_t(s % 2 ? s + 1 : s)] + table,
               "stage %d: %zu bytes", s, memory[size_t(s)]);
}

}  // namespace PRECISION
