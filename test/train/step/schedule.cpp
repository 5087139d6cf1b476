// The lists of the pipeline: never a deadlock, few micro-batches alive, the bubble of the papers.
#include "test/pipeline_walk.h"
#include "test/test.h"

static const int kMostStages = test::kAddressSanitizer ? 6 : 16;

using Schedule = vector<Action> (*)(const PipelineShape&, int);

static Lists lists_of(Schedule schedule, const PipelineShape& p) {
    Lists lists;
    for (int s = 0; s < p.stages; s++) lists.push_back(schedule(p, s));
    return lists;
}

static void expect_works(const PipelineShape& p, const Lists& lists, bool backward) {
    for (int s = 0; s < p.stages; s++) {
        const auto works = std::count_if(
            lists[size_t(s)].begin(), lists[size_t(s)].end(),
            [](const Action& a) { return a.kind == Action::Forward || a.kind == Action::Backward; });
        EXPECT(works == p.micros * p.chunks * (backward ? 2 : 1),
               "%d stages, %d chunks, %d micro-batches: "
               "%d works on stage %d",
               p.stages, p.chunks, p.micros, int(works), s);
    }
}

// Forward leaves its output in a buffer, backward reads and writes its gradient in another: a list must not
// overwrite a value still needed.
static std::string overwritten(const PipelineShape& p, const vector<Action>& list, int s) {
    const Action* output = nullptr;
    const Action* gradient = nullptr;
    const int last = p.stages * p.chunks - 1;
    for (const Action& a : list) {
        const auto same = [&](const Action* b) { return b && b->chunk == a.chunk && b->micro == a.micro; };
        const bool down = a.payload == Action::Gradient;
        if (a.kind == Action::Forward) {
            if (output) return "output before it is sent";
            if (p.stages > 1 && number_of(p, s, a) != last) output = &a;
        }
        if (a.kind == Action::Send && !down) {
            if (!same(output)) return "sends an output that is not there";
            output = nullptr;
        }
        if (a.kind == Action::Recv && down) {
            if (gradient) return "gradient before it is used";
            gradient = &a;
        }
        if (a.kind == Action::Backward) {
            if (number_of(p, s, a) != last && p.stages > 1 && !same(gradient)) return "another gradient";
            gradient = nullptr;
        }
    }
    return "";
}

static void expect_sound(const char* name, Schedule schedule, const PipelineShape& p, bool backward) {
    const Lists lists = lists_of(schedule, p);
    expect_works(p, lists, backward);
    const PipelineOutcome o = walk(p, lists, 1, 2);
    EXPECT(o.wrong.empty(), "%s, %d stages, %d chunks, %d micro-batches: %s", name, p.stages, p.chunks,
           p.micros, o.wrong.c_str());
    for (int s = 0; s < p.stages; s++) {
        const std::string lost = overwritten(p, lists[size_t(s)], s);
        EXPECT(lost.empty(), "%s, %d stages, %d chunks, %d micro-batches, stage %d: %s", name, p.stages,
               p.chunks, p.micros, s, lost.c_str());
    }
}

TEST(one_f_one_b_never_deadlocks_and_keeps_few_micro_batches) {
    for (int stages = 1; stages <= 16; stages++)
        for (int micros = 1; micros <= 64; micros++) {
            const PipelineShape p{stages, 1, micros};
            expect_sound("1f1b", one_f_one_b, p, true);
            for (int s = 0; s < stages; s++) {
                const auto list = one_f_one_b(p, s);
                EXPECT(live_micros(list, 0) == std::min(stages - s, micros),
                       "%d stages, %d micro-batches: %d "
                       "live on stage %d",
                       stages, micros, live_micros(list, 0), s);
            }
        }
}

// Micro-batches alive on a pipeline stage, over its chunks: from arrival, or the first forward, to backward.
static int live_at_once(const vector<Action>& list, int stage) {
    int live = 0, most = 0;
    for (const Action& a : list) {
        const bool enters = a.kind == Action::Recv && a.payload == Action::Activation;
        if (enters || (a.kind == Action::Forward && a.chunk == 0 && stage == 0))
            most = std::max(most, ++live);
        if (a.kind == Action::Backward) live--;
    }
    return most;
}

TEST(interleaved_never_deadlocks_and_keeps_few_micro_batches) {
    for (int stages = 2; stages <= kMostStages; stages++)
        for (int chunks : {2, 3, 4})
            for (int micros = stages; micros <= 64; micros += stages) {
                const PipelineShape p{stages, chunks, micros};
                expect_sound("interleaved", interleaved, p, true);
                for (int s = 0; s < stages; s++) {
                    const auto list = interleaved(p, s);
                    // those of the start, and the one at work
                    const int promised = 2 * (stages - 1 - s) + (chunks - 1) * stages + 1;
                    EXPECT(live_at_once(list, s) <= promised,
                           "%d stages, %d chunks, %d micro-batches: %d live "
                           "on stage %d, %d promised",
                           stages, chunks, micros, live_at_once(list, s), s, promised);
                    for (int c = 0; c < chunks; c++)
                        EXPECT(live_micros(list, c) <= 2 * stages,
                               "%d stages, %d chunks, %d micro-batches, "
                               "stage %d: %d live of chunk %d",
                               stages, chunks, micros, s, live_micros(list, c), c);
                }
            }
}

TEST(forwards_alone_never_deadlock_and_keep_one_micro_batch) {
    for (int stages : {1, 2, 3, 4, 7, 16})
        for (int chunks : {1, 2, 3})
            for (int micros : {1, 2, 3, 4, 7, 9, 16, 64}) {
                const PipelineShape p{stages, chunks, micros};
                expect_sound("forward", forward_schedule, p, false);
                for (int s = 0; s < stages; s++)
                    for (int c = 0; c < chunks; c++)
                        EXPECT(live_micros(forward_schedule(p, s), c) == 1, "%d stages, %d chunks: %d live",
                               stages, chunks, live_micros(forward_schedule(p, s), c));
            }
}

// ZB-H1 of Qi et al. 2024, arXiv 2401.10241. No stage has more live micro-batches than the first of 1f1b.
TEST(zero_bubble_never_deadlocks_and_keeps_as_many_micro_batches_as_1f1b) {
    for (int stages = 1; stages <= kMostStages; stages++)
        for (int micros = 1; micros <= 40; micros++) {
            const PipelineShape p{stages, 1, micros};
            expect_sound("zb", zero_bubble, p, true);
            const int most = live_micros(one_f_one_b(p, 0), 0);
            for (int s = 0; s < stages; s++) {
                const auto list = zero_bubble(p, s);
                EXPECT(live_micros(list, 0) <= most, "%d stages, %d micro-batches: %d live on stage %d, %d "
                       "on the first of 1f1b", stages, micros, live_micros(list, 0), s, most);
                const auto halves = std::count_if(list.begin(), list.end(), [](const Action& a) {
                    return a.kind == Action::Weight;
                });
                EXPECT(halves == micros, "%d of %d weight halves", int(halves), micros);
            }
        }
}

// (stages - 1) (F + B - W) where W is at most F, else the gradient's way back alone: (stages - 1) B. That of
// 1f1b, with the same works: (stages - 1) (F + B + W).
TEST(the_bubble_of_halves_is_a_third) {
    for (int stages = 1; stages <= kMostStages; stages++)
        for (int micros = stages; micros <= 4 * stages; micros++)
            for (const auto& [F, B, W] : {std::tuple{1, 1, 1}, {2, 3, 2}, {3, 4, 2}, {2, 2, 3}}) {
                const PipelineShape p{stages, 1, micros};
                const int work = micros * (F + B + W);
                const int late = walk_halves(p, lists_of(zero_bubble, p), F, B, W).time - work;
                const int at_once = walk(p, lists_of(one_f_one_b, p), F, B + W).time - work;
                EXPECT(late == (stages - 1) * (B + std::max(0, F - W)), "%d stages, %d micro-batches, F %d, "
                       "B %d, W %d: a bubble of %d", stages, micros, F, B, W, late);
                if (F == B && B == W) EXPECT(3 * late == at_once, "%d, of 1f1b %d", late, at_once);
            }
}

// Ideal work is micros (F + B) a chunk; the rest of a step is the bubble: (stages - 1) (F + B), divided by
// the number of chunks (F and B are of a chunk).
TEST(the_bubble_is_that_of_the_papers) {
    for (int stages = 1; stages <= kMostStages; stages++)
        for (int micros = stages; micros <= 64; micros++)
            for (const auto& [F, B] : {std::pair{1, 1}, {1, 2}, {2, 3}, {3, 1}}) {
                const PipelineShape p{stages, 1, micros};
                const PipelineOutcome o = walk(p, lists_of(one_f_one_b, p), F, B);
                EXPECT(o.time == (micros + stages - 1) * (F + B), "1f1b, %d stages, %d micro-batches, F %d, "
                       "B %d: %d", stages, micros, F, B, o.time);
            }
}

TEST(the_interleaved_bubble_is_shorter_by_the_chunks) {
    for (int stages = 2; stages <= kMostStages; stages++)
        for (int micros = stages; micros <= 64; micros += stages)
            for (int chunks : {2, 3, 4})
                for (const auto& [F, B] : {std::pair{1, 1}, {3, 3}, {1, 2}, {2, 3}, {3, 1}}) {
                    const PipelineShape p{stages, chunks, micros};
                    const PipelineOutcome o = walk(p, lists_of(interleaved, p), F, B);
                    EXPECT(o.time == (micros * chunks + stages - 1) * (F + B), "interleaved, %d stages, %d "
                           "chunks, %d micro-batches, F %d, B %d: %d", stages, chunks, micros, F, B, o.time);
                }
}

TEST(one_stage_accumulates_gradients) {
    const vector<Action> list = pipeline_schedule({1, 1, 3}, 0);
    const vector<Action> expected = {{Action::Forward, 0, 0}, {Action::Backward, 0, 0},
                                     {Action::Forward, 0, 1}, {Action::Backward, 0, 1},
                                     {Action::Forward, 0, 2}, {Action::Backward, 0, 2}};
    EXPECT(list == expected, "not F0 B0 F1 B1 F2 B2");
}

// A chunk has all micro-batches before the next; its gradients are sums in the same order as without.
TEST(by_layers_each_chunk_comes_once_each_way) {
    const PipelineShape p{.stages = 1, .chunks = 3, .micros = 2, .layers = true};
    constexpr auto F = Action::Forward, B = Action::Backward;
    const vector<Action> expected = {{F, 0, 0}, {F, 0, 1}, {F, 1, 0}, {F, 1, 1}, {F, 2, 0}, {B, 2, 0},
                                     {F, 2, 1}, {B, 2, 1}, {B, 1, 0}, {B, 1, 1}, {B, 0, 0}, {B, 0, 1}};
    EXPECT(pipeline_schedule(p, 0) == expected, "another order");
    const vector<Action> forwards = {{F, 0, 0}, {F, 0, 1}, {F, 1, 0}, {F, 1, 1}, {F, 2, 0}, {F, 2, 1}};
    EXPECT(forward_schedule(p, 0) == forwards, "another order of forwards");
}

// A send that is waited for at once deadlocks 1F1B at two stages; interleaved stages need two on their way.
TEST(the_simulator_sees_a_deadlock_and_crossed_messages) {
    const PipelineShape p{2, 1, 3};
    const Lists sound = lists_of(one_f_one_b, p);
    const auto wrong = [&](const Lists& lists) { return walk(p, lists, 1, 1).wrong; };
    const PipelineOutcome waiting = walk(p, sound, 1, 1, 0);
    EXPECT(waiting.wrong.starts_with("deadlock"), "%s", waiting.wrong.c_str());
    const PipelineShape two{4, 2, 8};
    const PipelineOutcome one_buffer = walk(two, lists_of(interleaved, two), 1, 1, 1);
    EXPECT(one_buffer.wrong.starts_with("deadlock"), "%s", one_buffer.wrong.c_str());

    EXPECT(wrong(sound).empty(), "%s", wrong(sound).c_str());
    Lists crossed = sound;
    std::swap(crossed[1][0].micro, crossed[1][4].micro);
    EXPECT(crossed[1][4].kind == Action::Recv && wrong(crossed).starts_with("crossed"), "%s",
           wrong(crossed).c_str());
    Lists early = sound;
    std::rotate(early[0].begin(), early[0].begin() + 1, early[0].begin() + 2);
    EXPECT(wrong(early).starts_with("sent before"), "%s", wrong(early).c_str());
    EXPECT(!overwritten(p, {{Action::Forward, 0, 0}, {Action::Forward, 0, 1}}, 0).empty(),
           "an output that is lost");
    Lists halves = lists_of(zero_bubble, p);
    std::rotate(halves[1].rbegin(), halves[1].rbegin() + 1, halves[1].rbegin() + 2);
    EXPECT(wrong(halves).starts_with("out of order"), "%s", wrong(halves).c_str());
}
