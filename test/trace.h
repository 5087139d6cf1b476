// Reads a trace of log.trace, and says what is wrong with its structure.
#pragma once
#include <algorithm>
#include <map>

#include "test/program.h"

namespace test {

struct TracedEvent {
    double begin, end;              // microseconds
    int rank, lane;
    std::string category, name;
    json args;
};

struct ReadTrace {
    std::vector<TracedEvent> events;                        // in the order of the file
    std::map<int, std::string> ranks;                       // names of processes
    std::map<std::pair<int, int>, std::string> lanes;       // of rank and lane
};

inline ReadTrace read_trace(const std::string& path) {
    ReadTrace t;
    const json file = json::parse(text_of(path), nullptr, false);
    if (!file.is_object()) return t;
    for (const json& e : file["traceEvents"]) {
        const int rank = e["pid"], lane = e["tid"];
        if (e["ph"] == "M" && e["name"] == "process_name") t.ranks[rank] = e["args"]["name"];
        if (e["ph"] == "M" && e["name"] == "thread_name") t.lanes[{rank, lane}] = e["args"]["name"];
        if (e["ph"] != "X") continue;
        // as Perfetto reads them: whole nanoseconds, fractions cut off
        const double begin = std::floor(1e3 * double(e["ts"])), length = std::floor(1e3 * double(e["dur"]));
        t.events.push_back({begin / 1e3, (begin + length) / 1e3, rank, lane, e["cat"], e["name"], e["args"]});
    }
    return t;
}

// Microseconds of a rank that lie in an event of a lane; lane -1: of any.
inline double covered(const ReadTrace& t, int rank, int lane = -1) {
    double total = 0, reach = -INFINITY;                    // events are sorted
    for (const TracedEvent& e : t.events) {
        if (e.rank != rank || (lane >= 0 && e.lane != lane)) continue;
        total += std::max(0., e.end - std::max(e.begin, reach));
        reach = std::max(reach, e.end);
    }
    return total;
}

// Microseconds from a rank's first event to the end of the last.
inline double length_of(const ReadTrace& t, int rank) {
    double begin = INFINITY, end = -INFINITY;
    for (const TracedEvent& e : t.events)
        if (e.rank == rank) begin = std::min(begin, e.begin), end = std::max(end, e.end);
    return end - begin;
}

// Of a rank's host lane over the `ms` of the step, which is rank 0's: the share nearest to 1 among the steps
// that the run traced. A busy machine takes a rank's core between two events of one step, and ranks begin
// and end a step at moments of their own. Work that no event names is missing in every step.
inline double best_share(const std::string& run, int rank, std::vector<int> steps) {
    const auto rows = rows_of(run, "train");
    double best = 0;
    for (const int step : steps) {
        if (rows.size() < size_t(step)) continue;
        const ReadTrace t = read_trace(fmt::format("{}/trace_step_{}.json", folder(run), step));
        const double share = covered(t, rank, 0) / (1e3 * double(rows[size_t(step) - 1]["ms"]));
        if (std::abs(share - 1) < std::abs(best - 1)) best = share;
    }
    return best;
}

// Empty: events are sorted, have names and a known category, end after they begin, and nest or follow one
// another in their lane, to the nanosecond.
inline std::string wrong_with(const ReadTrace& t) {
    std::map<std::pair<int, int>, std::vector<TracedEvent>> open;
    double last = -INFINITY;
    if (t.events.empty()) return "no events";
    for (const TracedEvent& e : t.events) {
        const std::string where =
            fmt::format("rank {}, lane {}, {} at {:.3f}", e.rank, e.lane, e.name, e.begin);
        if (e.begin < last) return where + ": not sorted";
        last = e.begin;
        if (e.end < e.begin || e.begin < 0) return where + ": ends before it begins, or before 0";
        if (e.name.empty()) return where + ": no name";
        if (!t.ranks.contains(e.rank) || !t.lanes.contains({e.rank, e.lane}))
            return where + ": a lane without a name";
        if (e.category != "op" && e.category != "collective" && e.category != "wait" && e.category != "copy")
            return where + ": of category " + e.category;
        auto& stack = open[{e.rank, e.lane}];
        while (!stack.empty() && stack.back().end <= e.begin) stack.pop_back();
        if (!stack.empty() && e.end > stack.back().end)
            return where + ": crosses the end of " + stack.back().name;
        stack.push_back(e);
    }
    return "";
}

}  // namespace test
