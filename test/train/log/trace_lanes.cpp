// The timeline of a traced step, and its lanes, without a run.
#include "llmc/train/log/trace_lanes.h"

#include <thread>

#include "llmc/base/progress.h"
#include "test/trace.h"

using namespace test;
using std::string;

// Marks number the moments: an op ends with the next event, a scope and a collective where they say so.
TEST(an_op_ends_where_the_next_event_begins) {
    static int set = 0;
    Timeline t;
    Walk walk({Target::Cpu, 1});
    walk.computes = true, walk.timeline = &t;
    t.mark = [](int mark) {
        EXPECT(mark == set, "mark %d, %d are set", mark, set);
        set++;
    };
    const Cost op = {.name = "op"};
    walk.record(op);                                        // 0: begins at mark 0
    walk.record(op);                                        // 1: at mark 1
    t.open({.name = "scope"});                              // 2: at mark 2
    walk.record(op);                                        // 3: at mark 3, in the scope
    t.close();                                              //    mark 4
    walk.record({.name = "all_reduce", .kind = Kind::Collective, .axis = "tp"});    // 4: at mark 5
    t.close();                                              //    mark 6
    walk.record(op);                                        // 5: at mark 7
    t.finish();                                             //    mark 8
    const int expected[][2] = {{0, 1}, {1, 2}, {2, 4}, {3, 4}, {5, 6}, {7, 8}};
    EXPECT(t.events.size() == std::size(expected), "%zu events", t.events.size());
    for (size_t i = 0; i < std::min(t.events.size(), std::size(expected)); i++)
        EXPECT(t.events[i].begin_mark == expected[i][0] && t.events[i].end_mark == expected[i][1],
               "event %zu: from %d to %d", i, t.events[i].begin_mark, t.events[i].end_mark);
    EXPECT(t.events[2].entry == -1 && t.events[3].entry == 2 && t.events[5].entry == 4, "entries");
}

// An idle device reaches a mark at once: the host's time of a launch is of before the mark, however long the
// call takes.
TEST(no_op_runs_before_its_launch) {
    static double marked = 0;
    Timeline t;
    t.mark = [](int) {
        marked = seconds_now();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    t.op({.name = "op"});
    EXPECT(t.events.at(0).begin <= marked, "launched %g s after the mark", t.events[0].begin - marked);
    t.finish();
}

// A wait behind an op is not of the op.
TEST(a_wait_is_no_part_of_the_op_before_it) {
    Timeline t;
    t.op({.name = "op"});
    t.open({.name = "loader", .kind = Timeline::Kind::Wait});
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    t.close();
    t.finish();
    const Timeline::Event &op = t.events.at(0), &wait = t.events.at(1);
    EXPECT(wait.end - wait.begin >= 0.03 && op.end <= wait.begin && op.begin <= op.end, "%g s and %g s",
           op.end - op.begin, wait.end - wait.begin);
}

// Whatever another process takes of this rank's core is seen, and the lane is as long as the step's `ms`.
TEST(host_code_between_events_has_events_of_its_own) {
    Timeline t;
    t.events = {{.name = "loader", .kind = Timeline::Kind::Wait, .begin = 10.010, .end = 10.020},
                {.name = "inner", .begin = 10.012, .end = 10.014},
                {.name = "op", .begin = 10.0200003, .end = 10.030},        // 0.3 microseconds later
                {.name = "all_reduce", .axis = "dp", .kind = Timeline::Kind::Collective,
                 .begin = 10.034, .end = 10.040},
                {.name = "last", .begin = 10.044, .end = 10.070}};
    const ChromeProcess p = lanes_of(Walk({Target::Cpu, 1}), t, {10, 10.050}, {});
    std::vector<std::pair<double, double>> host;
    double covered = 0, end = 0;
    for (const ChromeEvent& e : p.events) {
        if (e.lane != 0) continue;
        if (e.name == "host code") host.emplace_back(e.begin, e.end);
        if (e.name != "inner") covered += e.end - e.begin;
        end = std::max(end, e.end);
    }
    const std::vector<std::pair<double, double>> expected = {
        {10, 10.010}, {10.030, 10.034}, {10.040, 10.044}};
    EXPECT(host == expected, "%zu events of host code", host.size());
    EXPECT_NEAR(covered, 0.050, 1e-6);
    EXPECT(end == 10.050, "the lane ends at %g", end);
}

// A GPU may reach two marks in the same nanosecond: an op without length stays before the next op.
TEST(events_that_begin_together_keep_their_order) {
    const ChromeProcess p = {.name = "rank 0", .lanes = {"host", "GPU"}, .events = {
        {3, 4, 0, "op", "last"}, {1, 3, 0, "wait", "outer"}, {1, 1, 0, "op", "set_zero"},
        {1, 2, 0, "op", "sum"}}};
    const string lines = chrome_lines(0, p, 1);
    size_t at = 0;
    for (const char* name : {"outer", "set_zero", "sum", "last"}) {
        const size_t found = lines.find(fmt::format("\"name\":\"{}\"", name));
        EXPECT(found != lines.npos && found >= at, "%s: %s", name, lines.c_str());
        at = found;
    }
}

// Events of any lengths nest to the nanosecond as Perfetto reads a file: it drops events that cross the end
// of another.
TEST(events_in_a_file_nest_to_the_nanosecond) {
    ChromeProcess p = {.name = "rank 0", .lanes = {"host"}, .events = {}};
    double now = 7;
    for (uint64_t i = 0; i < 2000; i++) {
        const auto random = [&](uint64_t n) { return 1e-9 * double(philox(4, n, i).x[0] % 9000) / 3; };
        const double middle = now + random(1), end = middle + random(2);
        p.events.push_back({now, end, 0, "wait", "outer"});
        p.events.push_back({now, middle, 0, "op", "first"});
        p.events.push_back({middle, end, 0, "op", "second"});
        now = end;
    }
    const string path = folder("nested.json"), lines[] = {chrome_lines(0, p, 7 - 1e-3)};
    std::ofstream(path) << chrome_trace(lines);
    const ReadTrace t = read_trace(path);
    EXPECT(wrong_with(t) == "" && t.events.size() == 6000, "%s", wrong_with(t).c_str());
    EXPECT_NEAR(t.events.front().begin, 1000, 1e-9);
    EXPECT_NEAR(t.events.back().end, 1000 + 1e6 * (now - 7), 0.0626);
}

// The check of test/trace.h sees a plain mistake: an op stretched into the wait behind it, and disorder.
TEST(the_check_of_lanes_sees_what_crosses) {
    ReadTrace t;
    t.ranks[0] = "rank 0", t.lanes[{0, 0}] = "host";
    t.events = {{0, 2, 0, 0, "op", "a", {}}, {2, 5, 0, 0, "wait", "b", {}}, {3, 4, 0, 0, "op", "c", {}}};
    EXPECT(wrong_with(t) == "", "%s", wrong_with(t).c_str());
    ReadTrace stretched = t, swapped = t, unknown = t;
    stretched.events[0].end = 3, swapped.events[0].begin = 2.5, unknown.events[1].category = "else";
    for (const ReadTrace& bad : {stretched, swapped, unknown, ReadTrace()})
        EXPECT(wrong_with(bad) != "", "nothing is wrong with %zu events", bad.events.size());
    EXPECT_NEAR(covered(t, 0), 5, 1e-9);
}
