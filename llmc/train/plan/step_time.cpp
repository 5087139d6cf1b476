#include "llmc/train/plan/step_time.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <string_view>

#include "llmc/base/check.h"

Parts& Parts::operator+=(const Parts& o) {
    products += o.products, attention += o.attention, memory += o.memory;
    exposed += o.exposed, hidden += o.hidden;
    return *this;
}

// ---------------------------------------------------------------------------------------------------------
// one stage

struct Started {
    double end, busy;
};  // of a collective

// A rank's clocks: of its ops, of each axis' collectives, and of copies.
struct Clocks {
    const Prices& prices;
    std::map<const char*, double> axes;                  // when an axis is free
    std::map<const char*, std::deque<Started>> pending;  // by axis; awaited in this order
    std::map<const Cost*, double> known;                 // prices of costs
    double now = 0, copies = 0;

    double price(const Cost& cost) {
        const auto [it, fresh] = known.try_emplace(&cost);
        if (fresh) it->second = seconds_of(cost);
        return it->second;
    }
    double seconds_of(const Cost& cost) const {
        if (prices.measured) return prices.measured->seconds_of(cost);
        return cost.kind == Kind::Collective ? seconds_of_collective(prices, cost)
                                             : seconds_of_op(prices, cost);
    }
    void wait_for(const Started& s, Parts& to) {
        const double waited = std::max(0.0, s.end - now);
        to.exposed += waited;
        to.hidden += std::max(0.0, s.busy - waited);
        now = std::max(now, s.end);
    }
    void collective(const Cost& cost, Parts& to);
    void stand_still(const Cost& cost, Parts& to);
    void run(const Cost& cost, Parts& to);
};

static bool starts(const Cost& c) {
    const std::string_view verb = c.name;
    return verb == "all_gather" || verb == "reduce_scatter";
}

static bool marks(const Cost& c) { return std::string_view(c.name) == "mark_copies"; }

// Messages of the pipeline are the simulation's.
void Clocks::collective(const Cost& cost, Parts& to) {
    if (std::string_view(cost.axis) == "pp") return;
    const double busy = price(cost), end = std::max(now, axes[cost.axis]) + busy;
    axes[cost.axis] = end;
    if (starts(cost))
        pending[cost.axis].push_back({end, busy});
    else
        wait_for({end, busy}, to);
}

// A collective, wait or copy that was measured: the rank stood still for as long.
void Clocks::stand_still(const Cost& cost, Parts& to) {
    if (cost.axis && std::string_view(cost.axis) == "pp") return;
    const double seconds = price(cost);
    now += seconds;
    (cost.axis ? to.exposed : to.memory) += seconds;
}

void Clocks::run(const Cost& cost, Parts& to) {
    const bool computes =
        cost.kind == Kind::Product || cost.kind == Kind::Attention || cost.kind == Kind::Memory;
    if (prices.measured && !computes) return stand_still(cost, to);
    const auto compute = [&](double& part) {
        const double seconds = price(cost);
        part += seconds, now += seconds;
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
            copies = std::max(now, copies) + price(cost);
            break;
        case Kind::Collective:
            collective(cost, to);
            break;
        case Kind::Wait:
            if (!cost.axis) return marks(cost) ? void() : wait_for({copies, 0}, to);
            std::deque<Started>& started = pending[cost.axis];
            if (started.empty()) return;  // of a message
            wait_for(started.front(), to);
            started.pop_front();
            break;
    }
}

StageTimes stage_times(const Prices& prices, const Walk& walk, const std::vector<Action>& actions,
                       int micros) {
    StageTimes t = {.actions = actions,
                    .parts = std::vector<Parts>(actions.size()),
                    .message = std::vector<double>(actions.size()),
                    .before = {},
                    .after = {},
                    .micros = micros};
    Clocks clocks{.prices = prices, .axes = {}, .pending = {}, .known = {}};
    bool began = false;
    for (const Walk::Entry& e : walk.entries) {
        const Cost& cost = walk.of(e);
        began |= e.action >= 0;
        Parts& to = e.action >= 0 ? t.parts[size_t(e.action)] : began ? t.after : t.before;
        const bool sends =
            e.action >= 0 && cost.kind == Kind::Collective && std::string_view(cost.name) == "send";
        if (sends) t.message[size_t(e.action)] = clocks.price(cost);
        clocks.run(cost, to);
    }
    return t;
}

// ---------------------------------------------------------------------------------------------------------
// all stages

// The micro-batch of a walk that stands for one of the step: the first, the last, or one between.
static int stands_for(int micro, int micros, int walked) {
    if (micros <= walked) return micro;
    if (micro == 0) return 0;
    return micro == micros - 1 ? walked - 1 : 1 % walked;
}

// Where the walk of a stage has an action of these: kind, chunk, micro-batch.
struct Places {
    std::map<std::array<int, 4>, size_t> at;

    explicit Places(const StageTimes& t) {
        for (size_t i = 0; i < t.actions.size(); i++) at[key(t.actions[i], t.actions[i].micro)] = i;
    }
    static std::array<int, 4> key(const Action& a, int micro) {
        return {int(a.kind), a.chunk, micro, int(a.payload)};
    }
};

struct StageRun {
    const StageTimes& times;
    Places places;
    std::vector<Action> actions;
    size_t next = 0;
    double now = 0;
    Parts parts = {};

    size_t place(const Action& a, int micros) const {
        const auto it = places.at.find(Places::key(a, stands_for(a.micro, micros, times.micros)));
        CHECK(it != places.at.end(), "the walk of a stage lacks an action of chunk {}", a.chunk);
        return it->second;
    }
};

using Messages = std::map<std::pair<int, int>, std::deque<double>>;  // arrivals, by sender and receiver

// Runs a stage until it waits for a message that is not sent yet. Returns whether an action ran.
static bool advance(StageRun& run, int stage, int micros, Messages& messages) {
    const size_t first = run.next;
    for (; run.next < run.actions.size(); run.next++) {
        const Action& a = run.actions[run.next];
        if (a.kind == Action::Recv) {
            std::deque<double>& arrivals = messages[{a.peer, stage}];
            if (arrivals.empty()) break;
            run.now = std::max(run.now, arrivals.front());
            arrivals.pop_front();
            continue;
        }
        const size_t at = run.place(a, micros);
        run.parts += run.times.parts[at];
        run.now += run.times.parts[at].sum();
        if (a.kind == Action::Send) messages[{stage, a.peer}].push_back(run.now + run.times.message[at]);
    }
    return run.next > first;
}

static StepTime simulate(const PipelineShape& shape, const std::vector<const StageTimes*>& stages) {
    std::vector<StageRun> runs;
    for (int s = 0; s < shape.stages; s++) {
        const StageTimes& t = *stages[size_t(s)];
        runs.push_back({.times = t,
                        .places = Places(t),
                        .actions = pipeline_schedule(shape, s),
                        .now = t.before.sum(),
                        .parts = t.before});
    }
    Messages messages;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < shape.stages; s++) moved |= advance(runs[size_t(s)], s, shape.micros, messages);
    }
    StepTime step;
    for (StageRun& run : runs) {
        CHECK(run.next == run.actions.size(), "a stage waits for a message that no stage sends");
        run.parts += run.times.after;
        step.seconds = std::max(step.seconds, run.now + run.times.after.sum());
    }
    const auto less = [](const StageRun& a, const StageRun& b) { return a.parts.sum() < b.parts.sum(); };
    const StageRun& busiest = *std::max_element(runs.begin(), runs.end(), less);
    step.parts = busiest.parts, step.after = busiest.times.after.sum();
    step.bubble = std::max(0.0, step.seconds - step.parts.sum());
    return step;
}

// Micro-batches beyond the pipeline's filling and emptying add the same time each.
StepTime step_time(const PipelineShape& shape, const std::vector<const StageTimes*>& stages) {
    const int few = 6 * shape.stages, many = 8 * shape.stages;
    if (shape.micros <= many) return simulate(shape, stages);
    PipelineShape part = shape;
    part.micros = few;
    const StepTime a = simulate(part, stages);
    part.micros = many;
    const StepTime b = simulate(part, stages);
    const double more = double(shape.micros - many) / (many - few);
    const auto grown = [&](auto member) { return b.*member + more * (b.*member - a.*member); };
    const auto part_of = [&](double Parts::*p) { return b.parts.*p + more * (b.parts.*p - a.parts.*p); };
    return {.seconds = grown(&StepTime::seconds),
            .parts = {.products = part_of(&Parts::products),
                      .attention = part_of(&Parts::attention),
                      .memory = part_of(&Parts::memory),
                      .exposed = part_of(&Parts::exposed),
                      .hidden = part_of(&Parts::hidden)},
            .after = b.after,
            .bubble = grown(&StepTime::bubble)};
}
