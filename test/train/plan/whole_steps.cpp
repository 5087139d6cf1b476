// Estimates of small meshes, against brute force: every rank and every micro-batch walked, none left out.
#include <set>

#include "llmc/train/plan/search.h"
#include "llmc/train/run/distinct_stages.h"
#include "test/tiny.h"
#include "test/train/plan/all_ranks.h"

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

// The step of the first copy of the pipeline, of walks of all micro-batches.
static StepTime step_of_copy(const Config& cfg, const Machine& machine, Simulated micros) {
    const Described gpu(kDescribedGpu);
    const Config planned = over_nccl(cfg);
    const ParallelConfig& p = planned.parallel;
    Prices prices = {.machine = machine, .bf16 = kIsBf16, .mesh = mesh_shape(p, kRanks)};
    const std::vector<StagePlace> places = distinct_copies(prices.mesh, machine).front();
    std::vector<StageTimes> times;
    PipelineShape shape = {};
    for (int s = 0; s < p.pp; s++) {
        const auto rank = described_stage(p, kRanks, s);
        const Walk walk =
            walk_of_run(planned, rank->mesh, {.micro_batch = cfg.train.micro_batch, .micros = 0});
        const Stage stage = make_stage(planned, rank->mesh, cfg.train.micro_batch);
        shape = stage.shape;
        prices.groups = &places[size_t(s)].groups;
        const StageTimes t = stage_times(prices, walk, stage.actions, shape.micros);
        times.push_back(at_stage(t, places[size_t(s)].near, s, p.pp));
    }
    std::vector<const StageTimes*> stages;
    for (const StageTimes& t : times) stages.push_back(&t);
    return step_time(shape, stages, micros);
}

// The largest differences between a plan and the walk of all ranks. seconds: of the step, relative. shares:
// of bubble and exposed communication, both as shares of the step.
//
// 1.1%: a plan walks one rank of a stage. Shards end at other tensors on other ranks, so these update with a
// launch or two more, 20 us of 2 ms.
struct Tolerance {
    double seconds = 0.011, shares = 0.015;
};

// Shares are those of the busiest rank in one copy of the pipeline, or of one that is almost as busy.
static double difference_of_shares(const StepTime& plan, const WholeStep& whole, const MeshShape& mesh) {
    double least = 1;
    for (int copy = 0; copy < mesh.dp; copy++) {
        std::vector<SecondsByKind> ranks;
        for (size_t r = 0; r < whole.ranks.size(); r++)
            if (index_on(mesh, kDp, int(r)) == copy) ranks.push_back(whole.ranks[r]);
        double busiest = 0;
        for (const SecondsByKind& rank : ranks) busiest = std::max(busiest, rank.sum());
        for (const SecondsByKind& rank : ranks) {
            if (rank.sum() < 0.98 * busiest) continue;
            const double bubble = plan.bubble / plan.seconds - (1 - rank.sum() / whole.seconds),
                         exposed = plan.by_kind.exposed / plan.seconds - rank.exposed / whole.seconds;
            least = std::min(least, std::max(std::abs(bubble), std::abs(exposed)));
        }
    }
    return least;
}

static void expect_whole(const Config& c, int ranks, const Machine& machine, const Tolerance& most = {}) {
    const ParallelConfig& p = c.parallel;
    const StepTime few = estimate(c, ranks, machine).step;
    const WholeStep whole = step_of_all_ranks(c, machine, ranks);
    const double shares = difference_of_shares(few, whole, mesh_shape(p, ranks));
    EXPECT(std::abs(few.seconds / whole.seconds - 1) < most.seconds && shares < most.shares,
           "tp %d, pp %d x %d, %s, zero %d of %d, micro %d, recompute %s: %g s, whole %g s; shares differ by "
           "%g",
           p.tp, p.pp, p.virtual_stages, p.order.c_str(), p.zero, p.zero_group, c.train.micro_batch,
           c.memory.recompute.text().c_str(), few.seconds, whole.seconds, shares);
}

// Two nodes: ZeRO over all ranks, and over those of a node; pipelines with borders of both kinds; the
// optimizer's state on the host.
TEST(a_few_walks_stand_for_all_ranks_and_micro_batches) {
    const Machine machine = nodes_of_4();
    std::set<int> tp, micro, zero, grouped, chunked;  // the last two: with pipelines
    for (const Config& c : candidates_of(planned_config(), kRanks, machine)) {
        tp.insert(c.parallel.tp), micro.insert(c.train.micro_batch);
        if (c.parallel.pp > 1) zero.insert(c.parallel.zero);
        if (c.parallel.pp > 1 && c.parallel.zero_group > 0) grouped.insert(c.parallel.zero);
        if (c.parallel.virtual_stages > 1) chunked.insert(c.parallel.zero);
        expect_whole(c, kRanks, machine);
        if (c.memory.recompute != Recompute::None || c.train.micro_batch > 1) continue;
        Config offloaded = c;
        offloaded.memory.offload = Offload::Optimizer;
        expect_whole(offloaded, kRanks, machine);
    }
    EXPECT(zero == std::set({0, 1, 2, 3}) && grouped == std::set({1, 2, 3}) && chunked == zero,
           "%zu ZeRO stages with pipelines, %zu in groups, %zu with chunks", zero.size(), grouped.size(),
           chunked.size());
    EXPECT(tp == std::set<int>({1, 2, 4, 8}) && *micro.rbegin() == 32, "tp to %d, micro-batch to %d",
           *tp.rbegin(), *micro.rbegin());
}

// Where the link to the host is slow, an update takes as long as the state takes in one direction: slices of
// the other direction are on their way meanwhile.
TEST(an_update_loads_and_stores_at_the_same_time) {
    Config cfg = planned_config();
    cfg.memory.offload = Offload::Optimizer;
    Machine slow = h100();
    slow.host_gbs = 0.1;
    const Model model(cfg, described_mesh(cfg.parallel, 1, 0)->mesh, 1, false);
    size_t state = 0;
    for (const StateSlot& slot : model.shards.state)
        for (int b = 0; b < model.shards.layout.count(); b++)
            state += model.shards.home_of(b, slot).elements.count;
    const double one_way = double(state * sizeof(real)) / (1e9 * slow.host_gbs);
    const double update = estimate(cfg, 1, slow).step.after;
    EXPECT(update > one_way && update < 1.4 * one_way, "%g s, %g s in one direction", update, one_way);
}

// 12 ranks on nodes of 8. With tp 2 and dp 6, one node has four members of a group of ZeRO, the other two.
// With pp 3 and dp 4, the border cuts the third copy alone, after two stages. With tp 3 and tp 6, the border
// cuts some groups and leaves others whole. Then some ranks of a stage get their message from their node, and
// wait in the next sum for the other ranks. These waits are up to 5% of the step: the walk counts a bubble,
// the plan communication.
TEST(borders_of_nodes_cut_some_copies_and_groups) {
    Config cfg = planned_config(24);
    cfg.model.layers = 6, cfg.model.heads = 12, cfg.model.channels = 384;
    std::set<std::pair<int, int>> meshes;  // tp, pp
    for (const Config& c : candidates_of(cfg, 12, h100())) {
        if (c.memory.recompute != Recompute::None) continue;
        meshes.insert({c.parallel.tp, c.parallel.pp});
        const bool mixed = c.parallel.tp % 3 == 0 && c.parallel.pp > 1;
        expect_whole(c, 12, h100(), {.shares = mixed ? 0.05 : 0.015});
    }
    for (const std::pair<int, int>& mesh : {std::pair(2, 1), {1, 3}, {3, 4}, {6, 2}})
        EXPECT(meshes.contains(mesh), "no tp %d, pp %d", mesh.first, mesh.second);
}

// Two nodes of 4 and tp 2 x pp 2: by default ZeRO goes over the network. With tp and dp inside it stays in
// the node, and the pipeline goes over the network.
TEST(the_order_of_the_axes_says_who_gets_the_network) {
    const Machine machine = nodes_of_4();
    const auto on = [&](const char* order, const char* group) {
        ParallelConfig p = {.tp = 2, .pp = 2};
        p.order = order;
        return members_of(mesh_shape(p, kRanks), group, machine).nodes;
    };
    EXPECT(on("tp,pp,dp", "shard") == 2 && on("tp,pp,dp", "pp") == 1 && on("tp,pp,dp", "tp") == 1, "usual");
    EXPECT(on("tp,dp,pp", "shard") == 1 && on("tp,dp,pp", "pp") == 2 && on("tp,dp,pp", "tied") == 2, "dp");
    EXPECT(on("pp,dp,tp", "tp") == 2, "tp outside");
    Config cfg = planned_config();
    for (const char* order : {"tp,dp,pp", "pp,tp,dp", "dp,pp,tp"}) {
        cfg.parallel.order = order;
        for (const Config& c : candidates_of(cfg, kRanks, machine))
            if (c.memory.recompute == Recompute::None && c.train.micro_batch == 1 && c.parallel.pp > 1)
                expect_whole(c, kRanks, machine);
    }
    Config zero3 = planned_config();
    zero3.parallel = {.tp = 2, .pp = 2, .zero = 3};
    Machine slow = machine;
    slow.network_gbs = 0.5;
    const double usual = estimate(zero3, kRanks, slow).step.seconds;
    zero3.parallel.order = "tp,dp,pp";
    const double inside = estimate(zero3, kRanks, slow).step.seconds;
    EXPECT(inside < 0.9 * usual, "%g s with ZeRO inside nodes, %g s over the network", inside, usual);
}

// Nodes of 2 in pods of 4, with an eighth of the rate between pods.
TEST(borders_of_pods_are_priced) {
    Machine pods = h100();
    pods.gpus_per_node = 2, pods.rails = 2, pods.pod_gpus = 4, pods.oversubscription = 8;
    for (const Config& c : candidates_of(planned_config(), kRanks, pods))
        if (c.memory.recompute == Recompute::None && c.train.micro_batch <= 2) expect_whole(c, kRanks, pods);
    Config c = planned_config();
    c.parallel.zero = 3;
    const double with = estimate(c, kRanks, pods).step.seconds;
    pods.oversubscription = 1;
    const double without = estimate(c, kRanks, pods).step.seconds;
    EXPECT(with > 1.2 * without, "%g s with pods, %g s without", with, without);
}

// parallel.reduce=ordered: each rank sends its slices straight to each rank, more bytes by each adapter.
TEST(sums_in_rank_order_between_nodes_are_priced) {
    Machine nodes = h100();
    nodes.gpus_per_node = 2, nodes.rails = 2, nodes.network_gbs = 0.5;
    const auto seconds = [&](ReduceOrder order, ReduceDtype dtype) {
        Config c = planned_config();
        c.parallel.reduce = order, c.parallel.reduce_dtype = dtype;
        return estimate(c, kRanks, nodes).step.seconds;
    };
    const double usual = seconds(ReduceOrder::Auto, ReduceDtype::Fp32);
    const double ordered = seconds(ReduceOrder::Ordered, ReduceDtype::Fp32);
    const double half = seconds(ReduceOrder::Ordered, ReduceDtype::Bf16);
    EXPECT(ordered > 1.05 * usual && half < ordered, "%g s in order, in bf16 %g s, by NCCL %g s", ordered,
           half, usual);
    EXPECT(seconds(ReduceOrder::Native, ReduceDtype::Bf16) == half, "bf16 is summed in order");
    nodes.gpus_per_node = kRanks;
    const double inside = seconds(ReduceOrder::Auto, ReduceDtype::Fp32);
    EXPECT_NEAR(seconds(ReduceOrder::Ordered, ReduceDtype::Fp32), inside, 1e-9 * inside);
}

// Nodes of 8 with slow links between them: each copy of three stages sends over one border or over none. The
// tolerance of 2.5% is for the copies, which meet to sum the gradients of the last micro-batch.
TEST(a_step_is_as_slow_as_its_slowest_copy) {
    Config cfg = planned_config(48);
    cfg.model.layers = 6;
    cfg.parallel.pp = 3;
    Machine slow = h100();
    slow.network_gbs = 0.5;
    expect_whole(cfg, 24, slow, {.seconds = 0.025, .shares = 0.015});
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
        const double few = step_of_copy(c, machine, Simulated::Few).seconds,
                     all = step_of_copy(c, machine, Simulated::All).seconds;
        EXPECT(std::abs(few / all - 1) < 0.003, "pp %d x %d, zero %d: %g s, all simulated %g s", p.pp,
               p.virtual_stages, p.zero, few, all);
        expect_whole(c, kRanks, machine);
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
    expect_whole(cfg, kRanks, h100(), {.seconds = 0.01, .shares = 0.01});

    cfg.model.window = {0};
    cfg.model.value_embeddings = ValueEmbeddings::Alternate;
    const std::vector<size_t> memory = estimate(cfg, kRanks, h100()).memory_of_stages;
    const size_t table = size_t(cfg.model.vocab) * size_t(cfg.model.channels) * sizeof(floatX);
    for (int s = 2; s < 6; s++)
        EXPECT(memory[size_t(s % 2 ? s : s + 1)] > memory[size_t(s % 2 ? s + 1 : s)] + table,
               "stage %d: %zu bytes", s, memory[size_t(s)]);
}

}  // namespace PRECISION
