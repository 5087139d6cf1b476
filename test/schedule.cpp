// The lists of the pipeline, walked by a simulator whose sends wait for their receiver.
#include "llmc/train/schedule.h"

#include <algorithm>
#include <set>
#include <string>

#include "test/test.h"

using std::vector;
using Lists = vector<vector<Action>>;
using Schedule = vector<Action> (*)(const PipelineShape&, int);

static Lists lists_of(Schedule schedule, const PipelineShape& p) {
    Lists lists;
    for (int s = 0; s < p.stages; s++) lists.push_back(schedule(p, s));
    return lists;
}

struct Outcome {
    int time = 0;       // when the last stage is done
    std::string wrong;  // empty: every action was done
};

static const char* const kKinds[] = {"forward", "backward", "send", "receive"};

static int part_of(const PipelineShape& p, int stage, const Action& a) { return a.chunk * p.stages + stage; }

// Every stage does its list in order. A send is done together with the receive that its peer is at; messages
// take no time, and carry what their chunk and micro-batch say: both sides have to mean the same.
struct Walk {
    const PipelineShape p;
    const Lists& lists;
    int F, B;
    vector<size_t> at = vector<size_t>(size_t(p.stages));
    vector<int> time = vector<int>(size_t(p.stages));
    std::set<std::tuple<int, int, int>> held = {};  // what is there: stage, part * 2 + backward, micro

    const Action* next(int s) const {
        return at[size_t(s)] < lists[size_t(s)].size() ? &lists[size_t(s)][at[size_t(s)]] : nullptr;
    }
    std::string text(int s) const {
        const Action* a = next(s);
        return !a ? "done"
                  : strf("stage %d: %s of chunk %d, micro-batch %d, peer %d", s, kKinds[a->kind], a->chunk,
                         a->micro, a->peer);
    }
    // A work needs what came before it, in this stage or by message; once.
    std::string work(int s, const Action& a) {
        const int part = part_of(p, s, a), last = p.stages * p.chunks - 1;
        const bool forward = a.kind == Action::Forward;
        const int from = forward ? part - 1 : part == last ? -2 : part + 1;  // -2: its own forward
        if (from >= 0 && !held.count({s, from * 2 + !forward, a.micro})) return "without input: " + text(s);
        if (!forward && !held.count({s, part * 2, a.micro})) return "before its forward: " + text(s);
        if (held.count({s, part * 2 + !forward, a.micro})) return "twice: " + text(s);
        held.insert({s, part * 2 + !forward, a.micro});
        time[size_t(s)] += forward ? F : B;
        return "";
    }
    std::string message(int s, const Action& a, int r, const Action& b) {
        const int part = part_of(p, s, a), entered = part_of(p, r, b);
        const bool gradient = a.way == Action::Gradient;
        if (b.peer != s || a.way != b.way || a.micro != b.micro || entered != part + (gradient ? -1 : 1))
            return "crossed messages: " + text(s) + "; " + text(r);
        if (!held.count({s, part * 2 + gradient, a.micro})) return "sent before it is made: " + text(s);
        held.insert({r, part * 2 + gradient, a.micro});
        time[size_t(s)] = time[size_t(r)] = std::max(time[size_t(s)], time[size_t(r)]);
        return "";
    }
    Outcome run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int s = 0; s < p.stages; s++) {
                const Action* a = next(s);
                if (!a || a->kind == Action::Recv) continue;
                std::string wrong;
                if (a->kind == Action::Send) {
                    const Action* b = next(a->peer);
                    if (!b || b->kind != Action::Recv || b->peer != s) continue;
                    wrong = message(s, *a, a->peer, *b);
                    at[size_t(a->peer)]++;
                } else
                    wrong = work(s, *a);
                if (!wrong.empty()) return {.time = 0, .wrong = wrong};
                at[size_t(s)]++;
                moved = true;
            }
        }
        for (int s = 0; s < p.stages; s++)
            if (next(s)) return {.time = 0, .wrong = "deadlock: " + text(s)};
        return {.time = *std::max_element(time.begin(), time.end()), .wrong = ""};
    }
};

static Outcome walk(const PipelineShape& p, const Lists& lists, int F, int B) {
    return Walk{.p = p, .lists = lists, .F = F, .B = B}.run();
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

// What forward leaves to be sent is in one buffer, and the gradient that a backward reads and leaves in
// another: a list must not overwrite what it still needs.
static std::string overwritten(const PipelineShape& p, const vector<Action>& list, int s) {
    const Action* output = nullptr;
    const Action* gradient = nullptr;
    const int last = p.stages * p.chunks - 1;
    for (const Action& a : list) {
        const auto same = [&](const Action* b) { return b && b->chunk == a.chunk && b->micro == a.micro; };
        const bool down = a.way == Action::Gradient;
        if (a.kind == Action::Forward) {
            if (output) return "output before it is sent";
            if (p.stages > 1 && part_of(p, s, a) != last) output = &a;
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
            if (part_of(p, s, a) != last && p.stages > 1 && !same(gradient)) return "another gradient";
            gradient = nullptr;
        }
    }
    return "";
}

static void expect_sound(const char* name, Schedule schedule, const PipelineShape& p, bool backward) {
    const Lists lists = lists_of(schedule, p);
    expect_works(p, lists, backward);
    const Outcome o = walk(p, lists, 1, 2);
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
                EXPECT(waiting_gradients(list) == 0, "a gradient waits on stage %d of %d", s, stages);
            }
        }
}

// Micro-batches of all chunks that a stage holds: from the message that brings one, or the first part's
// forward, to its backward.
static int live_at_once(const vector<Action>& list, int stage) {
    int live = 0, most = 0;
    for (const Action& a : list) {
        const bool enters = a.kind == Action::Recv && a.way == Action::Activation;
        if (enters || (a.kind == Action::Forward && a.chunk == 0 && stage == 0))
            most = std::max(most, ++live);
        if (a.kind == Action::Backward) live--;
    }
    return most;
}

TEST(interleaved_never_deadlocks_and_keeps_few_micro_batches) {
    for (int stages = 2; stages <= 16; stages++)
        for (int chunks : {2, 3, 4})
            for (int micros = stages; micros <= 64; micros += stages) {
                const PipelineShape p{stages, chunks, micros};
                expect_sound("interleaved", interleaved, p, true);
                for (int s = 0; s < stages; s++) {
                    const auto list = interleaved(p, s);
                    // those of the start, the one at work, and one that has come for the next
                    const int promised = 2 * (stages - 1 - s) + (chunks - 1) * stages + 1 + (s > 0);
                    EXPECT(live_at_once(list, s) <= promised,
                           "%d stages, %d chunks, %d micro-batches: %d live "
                           "on stage %d, %d promised",
                           stages, chunks, micros, live_at_once(list, s), s, promised);
                    for (int c = 0; c < chunks; c++)
                        EXPECT(live_micros(list, c) <= 2 * stages,
                               "%d stages, %d chunks, %d micro-batches, "
                               "stage %d: %d live of chunk %d",
                               stages, chunks, micros, s, live_micros(list, c), c);
                    EXPECT(waiting_gradients(list) <= stages / 2, "%d gradients wait on stage %d of %d",
                           waiting_gradients(list), s, stages);
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

// Ideal work is micros (F + B) a chunk; what a step takes beyond that is the bubble: (stages - 1) (F + B),
// and as many times less as there are chunks (F and B are a chunk's).
TEST(the_bubble_is_that_of_the_papers) {
    for (int stages : {1, 2, 3, 4, 5, 8, 16})
        for (int micros = stages; micros <= 3 * stages; micros++)
            for (const auto& [F, B] : {std::pair{1, 1}, {1, 2}, {2, 3}, {3, 1}}) {
                const PipelineShape p{stages, 1, micros};
                const Outcome o = walk(p, lists_of(one_f_one_b, p), F, B);
                EXPECT(o.time == (micros + stages - 1) * (F + B), "1f1b, %d stages, %d micro-batches, F %d, "
                       "B %d: %d", stages, micros, F, B, o.time);
            }
}

// Interleaved, a stage computes a forward while the next computes a backward, and sends wait for receivers:
// free where F = B. A longer backward is waited for, for up to (chunks - 1) / chunks of all works.
TEST(the_interleaved_bubble_is_shorter_by_the_chunks) {
    for (int stages : {2, 3, 4, 5, 8, 16})
        for (int micros = stages; micros <= 4 * stages; micros += stages)
            for (int chunks : {2, 3, 4})
                for (const auto& [F, B] : {std::pair{1, 1}, {3, 3}, {1, 2}, {2, 3}}) {
                    const PipelineShape p{stages, chunks, micros};
                    const int most = (B - F) * micros * (chunks - 1);
                    const int extra = walk(p, lists_of(interleaved, p), F, B).time -
                                      (micros * chunks + stages - 1) * (F + B);
                    EXPECT(extra >= 0 && extra <= most,
                           "interleaved, %d stages, %d chunks, %d micro-batches, "
                           "F %d, B %d: %d more, at most %d", stages, chunks, micros, F, B, extra, most);
                }
}

TEST(one_stage_accumulates_gradients) {
    const vector<Action> list = pipeline_schedule({1, 1, 3}, 0);
    const vector<Action> expected = {{Action::Forward, 0, 0}, {Action::Backward, 0, 0},
                                     {Action::Forward, 0, 1}, {Action::Backward, 0, 1},
                                     {Action::Forward, 0, 2}, {Action::Backward, 0, 2}};
    EXPECT(list == expected, "not F0 B0 F1 B1 F2 B2");
}

// 1F1B in its natural order, each result sent at once, deadlocks at two stages: the simulator sees it.
TEST(the_simulator_sees_a_deadlock_and_crossed_messages) {
    using enum Action::Kind;
    using enum Action::Way;
    const PipelineShape p{2, 1, 3};
    const Lists natural = {{{Forward, 0, 0},
                            {Send, 0, 0, Activation, 1},
                            {Forward, 0, 1},
                            {Send, 0, 1, Activation, 1},
                            {Recv, 0, 0, Gradient, 1},
                            {Backward, 0, 0},
                            {Forward, 0, 2},
                            {Send, 0, 2, Activation, 1},
                            {Recv, 0, 1, Gradient, 1},
                            {Backward, 0, 1},
                            {Recv, 0, 2, Gradient, 1},
                            {Backward, 0, 2}},
                           {{Recv, 0, 0, Activation, 0},
                            {Forward, 0, 0},
                            {Backward, 0, 0},
                            {Send, 0, 0, Gradient, 0},
                            {Recv, 0, 1, Activation, 0},
                            {Forward, 0, 1},
                            {Backward, 0, 1},
                            {Send, 0, 1, Gradient, 0},
                            {Recv, 0, 2, Activation, 0},
                            {Forward, 0, 2},
                            {Backward, 0, 2},
                            {Send, 0, 2, Gradient, 0}}};
    EXPECT(walk(p, natural, 1, 1).wrong.starts_with("deadlock"), "%s", walk(p, natural, 1, 1).wrong.c_str());

    const Lists sound = lists_of(one_f_one_b, p);
    EXPECT(walk(p, sound, 1, 1).wrong.empty(), "%s", walk(p, sound, 1, 1).wrong.c_str());
    Lists crossed = sound;
    std::swap(crossed[1][0].micro, crossed[1][3].micro);
    EXPECT(walk(p, crossed, 1, 1).wrong.starts_with("crossed"), "%s", walk(p, crossed, 1, 1).wrong.c_str());
    Lists early = sound;
    std::rotate(early[0].begin(), early[0].begin() + 1, early[0].begin() + 2);
    EXPECT(walk(p, early, 1, 1).wrong.starts_with("sent before"), "%s", walk(p, early, 1, 1).wrong.c_str());
    EXPECT(!overwritten(p, {{Forward, 0, 0}, {Forward, 0, 1}}, 0).empty(), "an output that is lost");
}
