// One stage of train/price/step_time.h: the walk of a rank, priced.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "llmc/train/price/step_time.h"

inline namespace price {

// Others are awaited at once.
static bool starts(const Cost& c) {
    return c.verb == kAllGather || c.verb == kReduceScatter || c.verb == kAllToAll;
}

// Messages between stages are the simulation's.
static bool is_of_message(const Cost& c) { return c.axis && group_rows[index_of_group(c.axis)].messages; }

namespace {
// Prices of the costs of a walk, each computed once.
struct Pricing {
    const Prices& prices;
    const Walk& walk;
    std::vector<double> known = std::vector<double>(walk.costs.size(), -1);

    double seconds_of(const Cost& cost) const {
        if (prices.measured) return prices.measured->seconds_of(cost);
        return cost.kind == Kind::Collective ? seconds_of_collective(prices, cost)
                                             : seconds_of_op(prices, cost);
    }
    double price(const Walk::Entry& e) {
        double& seconds = known[size_t(e.cost)];
        if (seconds < 0) seconds = seconds_of(walk.of(e));
        return seconds;
    }
    void add(std::vector<RankEvent>& to, const Walk::Entry& e);
};
}  // namespace

static void add_work(std::vector<RankEvent>& to, double SecondsByKind::*kind, double seconds) {
    if (to.empty() || to.back().kind != RankEvent::Work) to.push_back({.kind = RankEvent::Work});
    to.back().work.*kind += seconds;
}

static RankEvent collective_event(const Cost& cost, RankEvent::Kind kind, double busy) {
    return {.kind = kind, .axis = int(index_of_group(cost.axis)), .busy = busy};
}

// Where the rank was measured, it stood still in collectives, waits and copies for as long as they took.
void Pricing::add(std::vector<RankEvent>& to, const Walk::Entry& e) {
    const Cost& cost = walk.of(e);
    if (is_of_message(cost)) return;
    const auto work = [&](double SecondsByKind::*kind) { add_work(to, kind, price(e)); };
    switch (cost.kind) {
        case Kind::Product: return work(&SecondsByKind::products);
        case Kind::Attention: return work(&SecondsByKind::attention);
        case Kind::Memory: return work(&SecondsByKind::memory);
        default: break;
    }
    if (prices.measured) return work(cost.axis ? &SecondsByKind::exposed : &SecondsByKind::memory);
    if (cost.kind == Kind::Copy) {
        if (!cost.copy.beside) return work(&SecondsByKind::memory);
        to.push_back({.kind = RankEvent::Copy, .axis = int(*cost.copy.lane), .busy = price(e)});
    } else if (cost.kind == Kind::Collective) {
        to.push_back(collective_event(cost, starts(cost) ? RankEvent::Start : RankEvent::Meet, price(e)));
    } else if (cost.axis) {
        to.push_back(collective_event(cost, RankEvent::Await, 0));
    } else if (cost.ticket.op == TicketShape::Mark) {
        to.push_back({.kind = RankEvent::Mark, .axis = int(cost.ticket.lane), .ticket = cost.ticket.number});
    } else if (cost.ticket.op == TicketShape::AwaitAll) {
        to.push_back({.kind = RankEvent::AwaitLanes});
    } else {
        to.push_back({.kind = RankEvent::AwaitCopies, .ticket = cost.ticket.number});
    }
}

// The axes whose collectives an action starts and a later one, or the norm, awaits.
static std::array<bool, kGroups> axes_between_actions(const StageTimes& t) {
    std::array<bool, kGroups> between = {};
    for (const std::vector<RankEvent>& action : t.events) {
        std::array<int, kGroups> pending = {};
        for (const RankEvent& event : action) {
            int& of_axis = pending[size_t(event.axis)];
            if (event.kind == RankEvent::Start) of_axis++;
            if (event.kind == RankEvent::Await && --of_axis < 0) between[size_t(event.axis)] = true;
        }
        for (size_t axis = 0; axis < kGroups; axis++) between[axis] = between[axis] || pending[axis] > 0;
    }
    return between;
}

// One event stands for an action whose collectives all end in it: the action's time never changes.
static void join_events(StageTimes& t) {
    const std::array<bool, kGroups> between = axes_between_actions(t);
    const auto stays = [&](const RankEvent& event) {
        if (event.kind >= RankEvent::Copy) return false;
        return event.kind == RankEvent::Work || !between[size_t(event.axis)];
    };
    for (std::vector<RankEvent>& action : t.events)
        if (std::all_of(action.begin(), action.end(), stays))
            action = {{.kind = RankEvent::Work, .work = seconds_alone(action)}};
}

// The gradient norm is a collective of all ranks: the first of them after the last action.
static bool meets_all_ranks(const Cost& c) {
    if (!c.axis || std::string_view(c.axis) != "world") return false;
    return c.kind == Kind::Wait || (c.kind == Kind::Collective && !starts(c));
}

StageTimes stage_times(const Prices& prices, const Walk& walk, const std::vector<Action>& actions,
                       int micros) {
    StageTimes t = {.actions = actions,
                    .events = std::vector<std::vector<RankEvent>>(actions.size()),
                    .message = std::vector<double>(actions.size()),
                    .near_message = std::vector<double>(actions.size()),
                    .micros = micros};
    Pricing pricing{prices, walk};
    bool began = false, met = false;
    for (const Walk::Entry& e : walk.entries) {
        const Cost& cost = walk.of(e);
        const bool acts = e.action >= 0;
        began |= acts;
        std::vector<RankEvent>& end = met ? t.after : t.norm;
        std::vector<RankEvent>& outside = began ? end : t.before;
        if (acts && cost.kind == Kind::Collective && cost.verb == kSend) {
            const double far = t.message[size_t(e.action)] = pricing.price(e);
            t.near_message[size_t(e.action)] = prices.measured ? far : seconds_of_message(prices, cost, true);
        }
        pricing.add(acts ? t.events[size_t(e.action)] : outside, e);
        met |= began && !acts && meets_all_ranks(cost);
    }
    if (!met) t.after = std::exchange(t.norm, {});  // one rank
    join_events(t);
    return t;
}

StageTimes at_stage(StageTimes t, const Near& near, int walked, int stages) {
    for (size_t i = 0; i < t.actions.size(); i++) {
        if (t.actions[i].kind != Action::Send) continue;
        const int away = t.actions[i].peer - walked;
        const bool next = away == 1 || away == 1 - stages;
        if (next ? near.next : near.previous) t.message[i] = t.near_message[i];
    }
    return t;
}

}  // namespace price
