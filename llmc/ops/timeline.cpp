#include "llmc/ops/timeline.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/progress.h"

inline namespace any_backend {

// An idle device reaches a mark at once. Host time before the mark: no op runs before its launch. An event
// that only ends takes host time after the mark, as the call belongs to the event.
Timeline::Now Timeline::now(bool ends) {
    if (!records) return {0, -1};
    const double before = seconds_now();
    if (!mark) return {before, -1};
    mark(marks);
    return {ends ? seconds_now() : before, marks++};
}

// Blocks and micro-batches are ranges around the ops' own.
void Timeline::group_ranges(const Event& what) {
    if (in_range && what.block == range_block && what.micro == range_micro) return;
    if (in_range) ranges->pop();
    range_block = what.block;
    range_micro = what.micro;
    in_range = range_block >= 0 || range_micro >= 0;
    if (!in_range) return;
    std::string name = range_block >= 0 ? fmt::format("block {}", range_block) : "ends";
    if (range_micro >= 0) name += fmt::format(", micro-batch {}", range_micro);
    ranges->push(name.c_str());
}

// The running op ends here.
int32_t Timeline::begin(const Event& what) {
    const Now at = now(false);
    if (running >= 0) end(running, at);
    running = -1;
    if (ranges) {
        if (opened.empty()) group_ranges(what);
        ranges->push(what.name);
    }
    Event& added = events.emplace_back(what);
    added.begin = at.seconds;
    added.begin_mark = at.mark;
    return int32_t(events.size()) - 1;
}

void Timeline::end(int32_t event, const Now& at) {
    events[size_t(event)].end = at.seconds;
    events[size_t(event)].end_mark = at.mark;
    if (ranges) ranges->pop();
}

void Timeline::op(const Event& what) { running = begin(what); }

void Timeline::open(const Event& what) { opened.push_back(begin(what)); }

void Timeline::close() {
    CHECK(!opened.empty(), "timeline: no event is open");
    const Now at = now(true);
    if (running >= 0) end(running, at);
    running = -1;
    end(opened.back(), at);
    opened.pop_back();
}

void Timeline::started(const void* group, int verb, uint64_t ticket) {
    events[size_t(opened.back())].ticket = ticket;
    flights.push_back({group, verb, ticket, size_t(opened.back())});
}

// A collective that an earlier step started has no event here.
void Timeline::arrived(const void* group, int verb, uint64_t ticket) {
    const auto flight = std::find_if(flights.begin(), flights.end(), [&](const Flight& f) {
        return f.group == group && f.verb == verb && f.ticket == ticket;
    });
    if (flight == flights.end()) return;
    if (records) events[flight->event].arrived = seconds_now();
    flights.erase(flight);
}

void Timeline::finish() {
    const Now at = now(true);
    if (running >= 0) end(running, at);
    running = -1;
    for (; !opened.empty(); opened.pop_back()) end(opened.back(), at);
    if (in_range) ranges->pop();
    in_range = false;
}

}  // namespace any_backend
