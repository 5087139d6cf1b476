// The time of a step, by hand: schedules with equal stages, unequal stages, messages, collectives beside ops.
#include "llmc/train/plan/step_time.h"
#include "test/test.h"

static constexpr double kForward = 2, kBackward = 3;

// Every forward of a chunk takes kForward / chunks seconds of products, every backward kBackward / chunks.
static StageTimes even_stage(const PipelineShape& shape, int stage, double message = 0, double load = 1) {
    PipelineShape few = shape;
    few.micros = std::min(shape.micros, shape.chunks > 1 ? 2 * shape.stages : 3);
    StageTimes t = {.actions = pipeline_schedule(few, stage),
                    .parts = {},
                    .message = {},
                    .before = {},
                    .after = {},
                    .micros = few.micros};
    for (const Action& a : t.actions) {
        const bool computes = a.kind == Action::Forward || a.kind == Action::Backward;
        const double seconds = a.kind == Action::Forward ? kForward : kBackward;
        t.parts.push_back({.products = computes ? load * seconds / shape.chunks : 0});
        t.message.push_back(a.kind == Action::Send ? message : 0);
    }
    return t;
}

// All stages of a shape, one of them slower.
struct EvenStages {
    std::vector<StageTimes> times;
    std::vector<const StageTimes*> all;

    explicit EvenStages(const PipelineShape& shape, double message = 0, int slow = -1, double load = 1) {
        for (int s = 0; s < shape.stages; s++)
            times.push_back(even_stage(shape, s, message, s == slow ? load : 1));
        for (const StageTimes& t : times) all.push_back(&t);
    }
};

static StepTime time_of(const PipelineShape& shape, double message = 0, int slow = -1, double load = 1) {
    return step_time(shape, EvenStages(shape, message, slow, load).all);
}

// Narayanan et al. 2021, arXiv 2104.04473, section 2.2: (m + (p - 1) / v) (f + b). 1,000 micro-batches:
// beyond those that are simulated one by one.
TEST(the_bubble_is_the_papers) {
    for (const int stages : {1, 2, 4, 8})
        for (const int chunks : {1, 2, 4})
            for (const int rounds : {1, 2, 5, 1000}) {
                if (stages == 1 && chunks > 1) continue;
                const int micros = rounds * stages;
                const PipelineShape shape = {
                    stages, chunks, micros,
                    chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneFOneB};
                const StepTime t = time_of(shape);
                const double work = micros * (kForward + kBackward);
                const double bubble = double(stages - 1) / chunks * (kForward + kBackward);
                EXPECT_NEAR(t.seconds, work + bubble, 1e-9 * work);
                EXPECT_NEAR(t.bubble, bubble, 1e-9 * work);
                EXPECT_NEAR(t.parts.products, work, 1e-9 * work);
            }
}

TEST(a_message_delays_the_next_stage) {
    const PipelineShape shape = {4, 1, 8, PipelineSchedule::OneFOneB};
    const double without = time_of(shape).seconds, with = time_of(shape, 0.5).seconds;
    EXPECT(with >= without + 2 * 3 * 0.5, "%g with messages of 0.5 s, %g without", with, without);
}

TEST(the_slowest_stage_decides) {
    const PipelineShape shape = {4, 1, 100, PipelineSchedule::OneFOneB};
    for (int slow = 0; slow < 4; slow++) {
        const StepTime t = time_of(shape, 0, slow, 2);
        const double work = 100 * 2 * (kForward + kBackward);
        EXPECT_NEAR(t.parts.products, work, 1e-9 * work);
        EXPECT(t.seconds >= work && t.seconds < work * 1.1, "%g s, the slowest stage works %g", t.seconds,
               work);
        EXPECT_NEAR(t.seconds, t.parts.sum() + t.bubble, 1e-9 * work);
    }
}

// ---------------------------------------------------------------------------------------------------------
// a drawing

// Spans follow each other, and with the waits between them they fill the step. Those beyond the micro-batches
// that are drawn are counted by the time that is left out.
TEST(a_drawn_step_is_the_step_that_is_timed) {
    for (const int chunks : {1, 2})
        for (const int micros : {4, 8, 32, 400}) {
            const PipelineShape shape = {
                4, chunks, micros, chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneFOneB};
            EvenStages stages(shape, 0.1, 2, 1.5);
            for (StageTimes& t : stages.times) t.before.memory = 0.25, t.after.products = 0.5;
            const StepTime t = step_time(shape, stages.all);
            const DrawnStep d = draw_step(shape, stages.all);
            EXPECT((d.micros_left_out > 0) == (micros == 400), "%d left out of %d", d.micros_left_out,
                   micros);
            EXPECT_NEAR(d.seconds + d.seconds_left_out, t.seconds, 1e-9 * t.seconds);
            EXPECT_NEAR(d.waits[size_t(d.busiest)], t.bubble, 1e-9 * t.seconds);
            EXPECT(d.busiest == 2 && d.cut <= d.seconds, "stage %d, cut at %g", d.busiest, d.cut);
            for (size_t s = 0; s < d.stages.size(); s++) {
                double end = 0, busy = 0;
                int forwards = 0, backwards = 0;
                for (const DrawnSpan& span : d.stages[s]) {
                    EXPECT(span.begin >= end - 1e-12 && span.end > span.begin, "stage %zu: spans overlap", s);
                    busy += span.end - span.begin, end = span.end;
                    forwards += span.kind == SpanKind::Forward, backwards += span.kind == SpanKind::Backward;
                }
                const int drawn = (micros - d.micros_left_out) * chunks;
                EXPECT(forwards == drawn && backwards == drawn, "%d, %d of %d", forwards, backwards, drawn);
                EXPECT(end <= d.seconds + 1e-12, "stage %zu ends after the step", s);
                const double more = d.micros_left_out * (kForward + kBackward) * (s == 2 ? 1.5 : 1);
                EXPECT_NEAR(busy + more + d.waits[s], t.seconds, 1e-9 * t.seconds);
            }
        }
}

// ---------------------------------------------------------------------------------------------------------
// one rank

// A machine on which 1e9 bytes take a second to copy, and to gather over 2 ranks.
static Prices slow_machine() {
    Prices p;
    p.machine = {.gpu = "slow",
                 .about = "",
                 .sources = "",
                 .memory_gb = 1,
                 .bf16_tflops = 1,
                 .fp32_tflops = 1,
                 .reached = 1,
                 .attention = 1,
                 .copy_gbs = 1,
                 .host_gbs = 1,
                 .launch_us = 0,
                 .units = 1,
                 .gpus_per_node = 8,
                 .node_gbs = 0.5,
                 .node_us = 0,
                 .network_gbs = 0.1,
                 .network_us = 0,
                 .links = 1};
    p.mesh = {.dp = 2, .shard = 2};
    return p;
}

static Cost op(uint64_t bytes) { return {.name = "op", .kind = Kind::Memory, .read = bytes}; }
static Cost gather(uint64_t bytes) {
    return {
        .name = "all_gather", .kind = Kind::Collective, .read = bytes / 2, .written = bytes, .axis = "shard"};
}
static Cost await_gather() { return {.name = "all_gather", .kind = Kind::Wait, .axis = "shard"}; }

static StageTimes times_of(const std::vector<Cost>& costs) {
    Walk walk({.backend = Target::Cuda, .threads = 1});
    walk.action = 0;
    for (const Cost& c : costs) walk.record(c);
    return stage_times(slow_machine(), walk, {{.kind = Action::Forward, .chunk = 0, .micro = 0}}, 1);
}

TEST(a_collective_runs_beside_ops_until_awaited) {
    constexpr uint64_t GB = 1000000000;
    for (const double ops : {0.25, 1.0, 3.0}) {
        const Parts p =
            times_of({gather(GB), op(uint64_t(ops * double(GB))), await_gather(), op(GB)}).parts[0];
        const double exposed = std::max(0.0, 1 - ops);
        EXPECT_NEAR(p.memory, ops + 1, 1e-9);
        EXPECT_NEAR(p.exposed, exposed, 1e-9);
        EXPECT_NEAR(p.hidden, 1 - exposed, 1e-9);
    }
}

TEST(collectives_of_an_axis_follow_each_other) {
    constexpr uint64_t GB = 1000000000;
    const Parts p = times_of({gather(GB), gather(GB), await_gather(), await_gather()}).parts[0];
    EXPECT_NEAR(p.exposed, 2, 1e-9);
}

TEST(links_between_nodes_are_shared_by_the_members_of_a_node) {
    Prices p = slow_machine();
    p.machine.gpus_per_node = 8;
    p.mesh = {.dp = 4, .tp = 4, .shard = 4};  // a node has 2 of the 4 members of shard
    const Members m = members_of(p.mesh, "shard", 8);
    EXPECT(m.all == 4 && m.inside == 2, "%d members, %d in a node", m.all, m.inside);
    EXPECT(members_of(p.mesh, "tp", 8).inside == 4 && members_of(p.mesh, "world", 8).inside == 8,
           "tp, world");
    const double over = seconds_of_collective(p, gather(1000000000));
    p.machine.gpus_per_node = 16;
    const double within = seconds_of_collective(p, gather(1000000000));
    EXPECT(over > 2 * within, "%g s over nodes, %g s inside one", over, within);
}

// tp = 6 on nodes of 8: ranks 6 to 11 lie on two nodes, two of them on the first. The whole of a small mesh
// is inside; and a pipeline of 12 stages has a link between nodes.
TEST(a_group_may_cross_the_border_of_a_node) {
    Prices p = slow_machine();
    p.mesh = {.dp = 4, .tp = 6, .shard = 4};
    EXPECT(members_of(p.mesh, "tp", 8).inside == 2 && members_of(p.mesh, "tp", 6).inside == 6,
           "%d", members_of(p.mesh, "tp", 8).inside);
    p.mesh = {.dp = 1, .tp = 6};
    EXPECT(members_of(p.mesh, "tp", 8).inside == 6, "one node");
    const Cost send = {.name = "send", .kind = Kind::Collective, .read = 1000000000, .axis = "pp"};
    p.mesh = {.dp = 1, .pp = 12};
    p.machine.gpus_per_node = 8;
    const double over = seconds_of_collective(p, send);
    p.machine.gpus_per_node = 12;
    EXPECT(over > 2 * seconds_of_collective(p, send), "%g s over the border", over);
}

// A rank that receives 1 GB from 4 ranks, itself included: at 0.5 GB/s inside a node, at 0.1 GB/s between
// nodes.
TEST(an_all_to_all_takes_the_slower_of_both_links) {
    Prices p = slow_machine();
    p.mesh = {.dp = 4, .tp = 4, .shard = 4};
    const Cost cost = {.name = "all_to_all", .kind = Kind::Collective, .read = 750000000,
                       .written = 1000000000, .axis = "shard"};
    EXPECT_NEAR(seconds_of_collective(p, cost), 5, 1e-9);
    p.machine.gpus_per_node = 16;
    EXPECT_NEAR(seconds_of_collective(p, cost), 1.5, 1e-9);
    Cost await = await_gather();
    await.name = cost.name;
    const Parts beside = times_of({cost, op(1000000000), await}).parts[0];
    EXPECT_NEAR(beside.hidden, 1, 1e-9);
    EXPECT_NEAR(beside.exposed, 0, 1e-9);
}

// A wave too many of tiles costs a whole wave; more FLOPs never cost less.
TEST(products_take_whole_waves) {
    Prices p = slow_machine();
    p.machine.units = 132, p.machine.copy_gbs = 1e6;
    const auto seconds = [&](int m, int n, int k) {
        return seconds_of_op(
            p, {.name = "product", .kind = Kind::Product, .dims = {m, n, k}, .flops = 2.0 * m * n * k});
    };
    const double ideal = 2.0 * 8192 * 8192 * 8192 / 1e12;
    EXPECT(seconds(8192, 8192, 8192) > ideal && seconds(8192, 8192, 8192) < 1.15 * ideal, "%g of %g",
           seconds(8192, 8192, 8192), ideal);
    const double small = seconds(256, 256, 256) / (2.0 * 256 * 256 * 256 / 1e12);
    EXPECT(small > 5, "a small product reaches 1/%g of the rate", small);
    for (int m = 128; m < 4096; m += 128)
        EXPECT(seconds(m + 128, 1024, 1024) >= (1 - 1e-12) * seconds(m, 1024, 1024), "%d rows", m);
}
