// The time of a step, by hand: schedules with equal stages, unequal stages, messages, collectives beside ops.
#include "llmc/train/price/step_time.h"
#include "test/train/price/slow_machine.h"

static constexpr double kForward = 2, kBackward = 3;        // in halves: 1.5 each

static RankEvent work(const SecondsByKind& seconds) { return {.kind = RankEvent::Work, .work = seconds}; }

// Every forward of a chunk takes kForward / chunks seconds of products, every backward kBackward / chunks.
static StageTimes even_stage(const PipelineShape& shape, int stage, double message = 0, double load = 1) {
    PipelineShape few = shape;
    few.micros = std::min(shape.micros, shape.chunks > 1 ? 2 * shape.stages : 3);
    StageTimes t = {.actions = pipeline_schedule(few, stage), .micros = few.micros};
    for (const Action& a : t.actions) {
        const bool computes = a.kind <= Action::Weight;
        const double back = shape.halves() ? kBackward / 2 : kBackward;
        const double seconds = a.kind == Action::Forward ? kForward : back;
        t.events.push_back({});
        if (computes) t.events.back() = {work({.products = load * seconds / shape.chunks})};
        t.message.push_back(a.kind == Action::Send ? message : 0);
    }
    return t;
}

// The pipeline stages of a shape; stage `slow` takes `load` times as long.
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

// One micro-batch. The second stage waits 2 s for its input. A collective of 2.75 s, started before, ends
// 0.75 s later; the forward awaits the collective.
TEST(collectives_go_on_while_a_stage_waits_for_a_message) {
    const PipelineShape shape = {2, 1, 1, PipelineSchedule::OneFOneB};
    EvenStages stages(shape);
    StageTimes& last = stages.times[1];
    last.before = {{.kind = RankEvent::Start, .axis = 3, .busy = 2.75}};
    for (size_t i = 0; i < last.actions.size(); i++)
        if (last.actions[i].kind == Action::Forward)
            last.events[i].insert(last.events[i].begin(), {.kind = RankEvent::Await, .axis = 3});
    const StepTime t = step_time(shape, stages.all);
    EXPECT_NEAR(t.by_kind.exposed, 0.75, 1e-9);
    EXPECT_NEAR(t.by_kind.hidden, 2, 1e-9);
    EXPECT_NEAR(t.seconds, 2 * (kForward + kBackward) + 0.75, 1e-9);
}

// Narayanan et al. 2021, arXiv 2104.04473, section 2.2: (m + (p - 1) / v) (f + b). 1,000 micro-batches:
// beyond the number that is simulated individually.
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
                EXPECT_NEAR(t.by_kind.products, work, 1e-9 * work);
            }
}

// Qi et al. 2024, arXiv 2401.10241, table 2: (p - 1) (f + b - w).
TEST(the_bubble_of_halves_is_the_papers) {
    for (const int stages : {2, 4, 8})
        for (const int rounds : {1, 2, 5, 1000}) {
            const PipelineShape shape = {stages, 1, rounds * stages, PipelineSchedule::ZeroBubble};
            const StepTime t = time_of(shape);
            const double work = shape.micros * (kForward + kBackward), bubble = (stages - 1) * kForward;
            EXPECT_NEAR(t.seconds, work + bubble, 1e-9 * work);
            EXPECT_NEAR(t.bubble, bubble, 1e-9 * work);
            EXPECT_NEAR(t.by_kind.products, work, 1e-9 * work);
        }
}

// A message is on its way once both stages have come to it. Its receiver communicates for as long; the wait
// before is a bubble.
TEST(a_message_delays_the_next_stage) {
    const StepTime one = time_of({2, 1, 1, PipelineSchedule::OneFOneB}, 0.5);
    EXPECT_NEAR(one.seconds, 2 * (kForward + kBackward) + 2 * 0.5, 1e-9);
    EXPECT_NEAR(one.by_kind.exposed, 0.5, 1e-9);
    EXPECT_NEAR(one.bubble, kForward + kBackward + 0.5, 1e-9);
    // The last stage comes to its second input when its first backward has ended.
    const StepTime two = time_of({2, 1, 2, PipelineSchedule::OneFOneB}, 0.5);
    EXPECT_NEAR(two.by_kind.exposed, 2 * 0.5, 1e-9);
    EXPECT_NEAR(two.seconds, kForward + 2 * (0.5 + kForward + kBackward) + 0.5 + kBackward, 1e-9);
    const PipelineShape shape = {4, 1, 8, PipelineSchedule::OneFOneB};
    const double without = time_of(shape).seconds, with = time_of(shape, 0.5).seconds;
    EXPECT(with >= without + 2 * 3 * 0.5, "%g with messages of 0.5 s, %g without", with, without);
}

// 1f1b has one buffer. The first message leaves at 2 s and arrives at 12 s; the second forward ends at 4 s,
// and its message waits for the buffer.
TEST(a_sender_waits_for_a_buffer) {
    const PipelineShape shape = {3, 1, 3, PipelineSchedule::OneFOneB};
    const DrawnStep d = draw_step(shape, EvenStages(shape, 10).all);
    EXPECT_NEAR(d.stages[0][1].end, 2 * kForward, 1e-9);
    EXPECT_NEAR(d.stages[0][2].begin, kForward + 10, 1e-9);
}

TEST(the_slowest_stage_decides) {
    const PipelineShape shape = {4, 1, 100, PipelineSchedule::OneFOneB};
    for (int slow = 0; slow < 4; slow++) {
        const StepTime t = time_of(shape, 0, slow, 2);
        const double work = 100 * 2 * (kForward + kBackward);
        EXPECT_NEAR(t.by_kind.products, work, 1e-9 * work);
        EXPECT(t.seconds >= work && t.seconds < work * 1.1, "%g s, the slowest stage works %g", t.seconds,
               work);
        EXPECT_NEAR(t.seconds, t.by_kind.sum() + t.bubble, 1e-9 * work);
    }
}

// The last stage has a longer norm, the first a longer update: every stage updates after the last norm.
TEST(no_stage_updates_before_the_norm_of_all) {
    const PipelineShape shape = {4, 1, 8, PipelineSchedule::OneFOneB};
    EvenStages stages(shape);
    const double actions = step_time(shape, stages.all).seconds;
    stages.times[0].after = {work({.memory = 3})}, stages.times[3].after = {work({.memory = 1})};
    stages.times[0].norm = {work({.memory = 0.25})};    // the first stage ends last
    EXPECT_NEAR(step_time(shape, stages.all).seconds, actions + 0.25 + 3, 1e-9);
    stages.times[3].norm = {work({.memory = 50})};
    const StepTime t = step_time(shape, stages.all);
    EXPECT(t.seconds > 50 + 3 && t.seconds < actions + 50 + 3, "%g s", t.seconds);
    const DrawnStep d = draw_step(shape, stages.all);
    EXPECT_NEAR(d.stages[0].back().begin, d.stages[3].back().begin, 1e-9);
    EXPECT(d.stages[0].back().kind == SpanKind::Update, "the last span is no update");
}

// ---------------------------------------------------------------------------------------------------------
// a drawing

// Spans follow each other, each with the message before it; spans and waits fill the step. The time left out
// counts the micro-batches beyond the drawn ones.
TEST(a_drawn_step_is_the_step_that_is_timed) {
    for (const int chunks : {1, 2})
        for (const int micros : {4, 8, 32, 400}) {
            const PipelineShape shape = {
                4, chunks, micros, chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneFOneB};
            constexpr double kMessage = 0.1;
            EvenStages stages(shape, kMessage, 2, 1.5);
            for (StageTimes& t : stages.times)
                t.before = {work({.memory = 0.25})}, t.norm = {work({.memory = 0.125})},
                t.after = {work({.products = 0.5})};
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
                const std::vector<Action> all = pipeline_schedule(shape, int(s));
                const auto received = std::count_if(all.begin(), all.end(), [](const Action& a) {
                    return a.kind == Action::Recv;
                });
                const double of_micro = (kForward + kBackward) * (s == 2 ? 1.5 : 1) +
                                        kMessage * double(received) / micros;
                EXPECT_NEAR(busy + d.micros_left_out * of_micro + d.waits[s], t.seconds, 1e-9 * t.seconds);
            }
        }
}

// ---------------------------------------------------------------------------------------------------------
// one rank

TEST(a_collective_runs_beside_ops_until_awaited) {
    constexpr uint64_t GB = 1000000000;
    for (const double ops : {0.25, 1.0, 3.0}) {
        const SecondsByKind p =
            seconds_of_action({gather(GB), op(uint64_t(ops * double(GB))), await_gather(), op(GB)});
        const double exposed = std::max(0.0, 1 - ops);
        EXPECT_NEAR(p.memory, ops + 1, 1e-9);
        EXPECT_NEAR(p.exposed, exposed, 1e-9);
        EXPECT_NEAR(p.hidden, 1 - exposed, 1e-9);
    }
}

// Ops after the last action belong to the norm until the first collective of all ranks has ended.
TEST(the_norm_ends_with_a_collective_of_all_ranks) {
    constexpr uint64_t GB = 1000000000;
    Walk walk({.backend = Target::Cuda, .threads = 1});
    Cost sum = gather(GB), wait = await_gather();
    sum.axis = wait.axis = "world";
    walk.action = 0;
    walk.record(op(GB));
    walk.action = -1;
    for (const Cost& c : {op(2 * GB), sum, wait, op(3 * GB)}) walk.record(c);
    const StageTimes t =
        stage_times(slow_machine(), walk, {{.kind = Action::Forward, .chunk = 0, .micro = 0}}, 1);
    EXPECT_NEAR(seconds_alone(t.norm).memory, 2, 1e-9);
    EXPECT_NEAR(seconds_alone(t.norm).exposed, 1, 1e-9);
    EXPECT_NEAR(seconds_alone(t.after).memory, 3, 1e-9);
}

static Cost start_copy(CopyLane lane, uint64_t bytes) {
    return {.name = "start_copy", .kind = Kind::Copy, .copy = {.lane = lane, .beside = true}, .read = bytes};
}
static Cost of_ticket(TicketShape::Op op, int ticket = 0, CopyLane lane = CopyLane()) {
    return {.name = "ticket", .kind = Kind::Wait, .ticket = {op, ticket, lane}};
}

// A copy to the host takes a second beside the ops, like a collective.
TEST(a_copy_runs_beside_ops_until_awaited) {
    constexpr uint64_t GB = 1000000000;
    const Cost copy = start_copy(CopyLane::ToHost, GB), wait = of_ticket(TicketShape::AwaitAll),
               in_turn = {.name = "copy", .kind = Kind::Copy, .read = GB};
    const SecondsByKind p = seconds_of_action({copy, op(GB / 4), copy, wait, op(GB)});
    EXPECT_NEAR(p.memory, 1.25, 1e-9);
    EXPECT_NEAR(p.exposed, 1.75, 1e-9);
    const SecondsByKind q = seconds_of_action({copy, in_turn, wait});
    EXPECT_NEAR(q.memory, 1, 1e-9);
    EXPECT_NEAR(q.exposed, 0, 1e-9);
}

// Copies of different lanes take as long as the longer lane, and a wait is for its ticket's copies alone.
TEST(lanes_of_copies_run_beside_each_other) {
    constexpr uint64_t GB = 1000000000;
    const Cost out = start_copy(CopyLane::ToHost, GB), in = start_copy(CopyLane::ToDevice, GB),
               finish = of_ticket(TicketShape::AwaitAll);
    const auto exposed = [](const std::vector<Cost>& costs) { return seconds_of_action(costs).exposed; };
    EXPECT_NEAR(exposed({in, out, finish}), 1, 1e-9);
    EXPECT_NEAR(exposed({in, out, in, finish}), 2, 1e-9);
    const Cost mark = of_ticket(TicketShape::Mark, 0, CopyLane::ToDevice),
               wait = of_ticket(TicketShape::Await);
    EXPECT_NEAR(exposed({wait, in, mark, in, wait}), 1, 1e-9);              // never marked; then the first
    EXPECT_NEAR(exposed({in, mark, out, out, wait}), 1, 1e-9);
    EXPECT_NEAR(exposed({in, mark, in, mark, wait, of_ticket(TicketShape::Await, 1)}), 2, 1e-9);
}

// A stage whose next stage is in its node: activations go by near links, gradients by the network.
TEST(messages_to_a_stage_of_the_node_are_near) {
    for (const int chunks : {1, 2}) {
        const PipelineShape shape = {
            4, chunks, 8, chunks > 1 ? PipelineSchedule::Interleaved : PipelineSchedule::OneFOneB};
        for (const int stage : {0, 1, 3}) {
            StageTimes t = even_stage(shape, stage, 0.5);
            t.near_message = std::vector<double>(t.actions.size(), 0.125);
            const StageTimes at = at_stage(t, {.previous = false, .next = true}, stage, 4);
            int sends = 0;
            for (size_t i = 0; i < t.actions.size(); i++) {
                const Action& a = t.actions[i];
                const bool near = a.kind == Action::Send && a.payload == Action::Activation;
                EXPECT_NEAR(at.message[i], near ? 0.125 : t.message[i], 0);
                sends += near;
            }
            EXPECT((sends > 0) == (chunks > 1 || stage < 3), "stage %d: %d messages", stage, sends);
        }
    }
}

TEST(collectives_of_an_axis_follow_each_other) {
    constexpr uint64_t GB = 1000000000;
    const SecondsByKind p = seconds_of_action({gather(GB), gather(GB), await_gather(), await_gather()});
    EXPECT_NEAR(p.exposed, 2, 1e-9);
}
