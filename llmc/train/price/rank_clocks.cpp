#include "llmc/train/price/rank_clocks.h"

#include <algorithm>

inline namespace price {

SecondsByKind& SecondsByKind::operator+=(const SecondsByKind& o) {
    products += o.products;
    attention += o.attention;
    memory += o.memory;
    exposed += o.exposed;
    hidden += o.hidden;
    return *this;
}

RankClocks::Started RankClocks::start(Collectives& axis, double busy) {
    axis.free = std::max(now, axis.free) + busy;
    return {.end = axis.free, .busy = busy};
}

void RankClocks::wait_for(const Started& s) {
    const double waited = std::max(0.0, s.end - now);
    by_kind.exposed += waited;
    by_kind.hidden += std::max(0.0, s.busy - waited);
    now = std::max(now, s.end);
}

void RankClocks::run(const RankEvent& event) {
    Collectives& axis = axes[event.axis];
    switch (event.kind) {
        case RankEvent::Work:
            by_kind += event.work;
            now += event.work.sum();
            break;
        case RankEvent::Start: axis.started.push_back(start(axis, event.busy)); break;
        case RankEvent::Meet: wait_for(start(axis, event.busy)); break;
        case RankEvent::Await:
            if (axis.awaited < axis.started.size()) wait_for(axis.started[axis.awaited++]);
            break;
        case RankEvent::Copy: lanes[event.axis] = std::max(now, lanes[event.axis]) + event.busy; break;
        case RankEvent::Mark:
            tickets.resize(std::max(tickets.size(), size_t(event.ticket) + 1));
            tickets[size_t(event.ticket)] = lanes[event.axis];
            break;
        case RankEvent::AwaitCopies:
            if (size_t(event.ticket) < tickets.size())
                wait_for({.end = tickets[size_t(event.ticket)], .busy = 0});
            break;
        case RankEvent::AwaitLanes: wait_for({.end = std::max(lanes[0], lanes[1]), .busy = 0}); break;
    }
}

void RankClocks::run(const std::vector<RankEvent>& events) {
    for (const RankEvent& event : events) run(event);
}

SecondsByKind seconds_alone(const std::vector<RankEvent>& events) {
    RankClocks rank;
    rank.run(events);
    return rank.by_kind;
}

}  // namespace price
