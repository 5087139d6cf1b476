// One stage of train/price/step_time.h: the clocks of a rank while it walks.
#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "llmc/train/price/step_time.h"

SecondsByKind& SecondsByKind::operator+=(const SecondsByKind& o) {
    products += o.products;
    attention += o.attention;
    memory += o.memory;
    exposed += o.exposed;
    hidden += o.hidden;
    return *this;
}

struct Started {
    double end, busy;
    int action;  // that started it; -1: none, before the first
};  // of a collective

// A rank's clocks: of its ops, of each axis' collectives, and of copies.
struct Clocks {
    const Prices& prices;
    std::map<const char*, double> axes;                  // when an axis is free
    std::map<const char*, std::deque<Started>> pending;  // by axis; awaited in this order
    std::map<const Cost*, double> known;                 // prices of costs
    double now = 0, copies = 0;
    int action = -1;     // of the entry
    bool sends = false;  // in this action
    double carried = 0;  // waited in this action for collectives of earlier ones

    double price(const Cost& cost) {
        const auto [it, fresh] = known.try_emplace(&cost);
        if (fresh) it->second = seconds_of(cost);
        return it->second;
    }
    double seconds_of(const Cost& cost) const {
        if (prices.measured) return prices.measured->seconds_of(cost);
        if (cost.kind == Kind::Copy && sends) return seconds_of_sent_copy(prices, cost);
        return cost.kind == Kind::Collective ? seconds_of_collective(prices, cost)
                                             : seconds_of_op(prices, cost);
    }
    void wait_for(const Started& s, SecondsByKind& to) {
        const double waited = std::max(0.0, s.end - now);
        to.exposed += waited;
        if (s.action < action) carried += waited;
        to.hidden += std::max(0.0, s.busy - waited);
        now = std::max(now, s.end);
    }
    void collective(const Cost& cost, SecondsByKind& to);
    void stand_still(const Cost& cost, SecondsByKind& to);
    void run(const Cost& cost, SecondsByKind& to);
};

static bool starts(const Cost& c) {
    const std::string_view verb = c.name;
    return verb == "all_gather" || verb == "reduce_scatter" || verb == "all_to_all";
}

static bool marks(const Cost& c) { return std::string_view(c.name) == "mark_copies"; }

// Messages of the pipeline are the simulation's.
void Clocks::collective(const Cost& cost, SecondsByKind& to) {
    if (std::string_view(cost.axis) == "pp") return;
    const double busy = price(cost), end = std::max(now, axes[cost.axis]) + busy;
    axes[cost.axis] = end;
    if (starts(cost))
        pending[cost.axis].push_back({end, busy, action});
    else
        wait_for({end, busy, action}, to);
}

// A collective, wait or copy that was measured: the rank stood still for as long.
void Clocks::stand_still(const Cost& cost, SecondsByKind& to) {
    if (cost.axis && std::string_view(cost.axis) == "pp") return;
    const double seconds = price(cost);
    now += seconds;
    (cost.axis ? to.exposed : to.memory) += seconds;
}

void Clocks::run(const Cost& cost, SecondsByKind& to) {
    const bool computes =
        cost.kind == Kind::Product || cost.kind == Kind::Attention || cost.kind == Kind::Memory;
    if (prices.measured && !computes) return stand_still(cost, to);
    const auto compute = [&](double& kind) {
        const double seconds = price(cost);
        kind += seconds;
        now += seconds;
    };
    switch (cost.kind) {
        case Kind::Product:
            compute(to.products);
            break;
        case Kind::Attention:
            compute(to.attention);
            break;
        case Kind::Memory:
            compute(to.memory);
            break;
        case Kind::Copy:
            if (sends) {
                compute(to.memory);
                break;
            }
            copies = std::max(now, copies) + price(cost);
            break;
        case Kind::Collective:
            collective(cost, to);
            break;
        case Kind::Wait:
            if (!cost.axis) return marks(cost) ? void() : wait_for({copies, 0, action}, to);
            std::deque<Started>& started = pending[cost.axis];
            if (started.empty()) return;  // of a message
            wait_for(started.front(), to);
            started.pop_front();
            break;
    }
}

// The gradient norm is a collective of all ranks: the first of them after the last action.
static bool meets_all_ranks(const Cost& c) {
    if (!c.axis || std::string_view(c.axis) != "world") return false;
    return c.kind == Kind::Wait || (c.kind == Kind::Collective && !starts(c));
}

StageTimes stage_times(const Prices& prices, const Walk& walk, const std::vector<Action>& actions,
                       int micros) {
    StageTimes t = {.actions = actions,
                    .seconds = std::vector<SecondsByKind>(actions.size()),
                    .carried = std::vector<double>(actions.size()),
                    .message = std::vector<double>(actions.size()),
                    .near_message = std::vector<double>(actions.size()),
                    .before = {},
                    .norm = {},
                    .after = {},
                    .micros = micros};
    Clocks clocks{.prices = prices, .axes = {}, .pending = {}, .known = {}};
    bool began = false, met = false;
    for (const Walk::Entry& e : walk.entries) {
        const Cost& cost = walk.of(e);
        began |= e.action >= 0;
        SecondsByKind& end = met ? t.after : t.norm;
        SecondsByKind& outside = began ? end : t.before;
        SecondsByKind& to = e.action >= 0 ? t.seconds[size_t(e.action)] : outside;
        const bool sends =
            e.action >= 0 && cost.kind == Kind::Collective && std::string_view(cost.name) == "send";
        if (sends) {
            const double far = t.message[size_t(e.action)] = clocks.price(cost);
            t.near_message[size_t(e.action)] = prices.measured ? far : seconds_of_message(prices, cost, true);
        }
        clocks.action = e.action;
        clocks.sends = e.action >= 0 && actions[size_t(e.action)].kind == Action::Send;
        clocks.carried = 0;
        clocks.run(cost, to);
        if (e.action >= 0) t.carried[size_t(e.action)] += clocks.carried;
        met |= began && e.action < 0 && meets_all_ranks(cost);
    }
    if (!met) t.after = std::exchange(t.norm, {});      // one rank
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
