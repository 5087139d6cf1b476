#include "llmc/train/price/step_time.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "llmc/base/check.h"

inline namespace price {

// ---------------------------------------------------------------------------------------------------------
// all stages

// The micro-batch of a walk that stands for one of the step: one of the first, of the last, or between. The
// schedule between repeats every `period` micro-batches; one period of the walk stands for all.
static int stands_for(int micro, int micros, int walked, int period) {
    const int ends = std::min(std::max(0, walked - period), micros), last = ends / 2, first = ends - last;
    if (micro < first) return micro;
    const int left = micros - micro;
    return left <= last ? walked - left : first + (micro - first) % std::min(period, walked);
}

namespace {
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

struct Message {
    double sent, way;
    double received = -1;  // -1: its receiver has not come to it
};

struct StageRun {
    const StageTimes& times;
    Places places;
    std::vector<Action> actions;
    size_t buffers = 0;  // of sends
    bool draws = false;
    size_t next = 0;
    RankClocks rank = {};
    double after = 0;  // seconds of norm and update
    std::vector<Message> sent = {};
    double receiving = 0;  // seconds of the message for the next forward or backward
    std::vector<DrawnSpan> spans = {};

    size_t place(const Action& a, const PipelineShape& shape) const {
        const int period = shape.chunks > 1 ? shape.stages : 1;
        const int micro = stands_for(a.micro, shape.micros, times.micros, period);
        const auto it = places.at.find(Places::key(a, micro));
        CHECK(it != places.at.end(), "the walk of a stage lacks an action of chunk {}", a.chunk);
        return it->second;
    }
    void run(const std::vector<RankEvent>& events, SpanKind kind, int chunk = 0, int micro = 0) {
        const double begin = rank.now - std::exchange(receiving, 0);
        rank.run(events);
        if (draws && rank.now > begin)
            spans.push_back({.kind = kind, .chunk = chunk, .micro = micro, .begin = begin, .end = rank.now});
    }
    void wait_until(double time) { rank.now = std::max(rank.now, time); }
    void receive(Message& m) {
        wait_until(m.sent);
        rank.run({.kind = RankEvent::Work, .work = {.exposed = m.way}});
        m.received = rank.now;
        receiving = m.way;
    }
    // The oldest message whose buffer the next send needs; null: a buffer is free.
    const Message* in_buffer() const {
        return sent.size() < buffers ? nullptr : &sent[sent.size() - buffers];
    }
    // A send's own work belongs to what it sends.
    void send(const std::vector<RankEvent>& events, double way) {
        const double begin = rank.now;
        rank.run(events);
        if (!spans.empty()) spans.back().end += rank.now - begin;
        sent.push_back({.sent = rank.now, .way = way});
    }
    void end(const std::vector<RankEvent>& events, SpanKind kind) {
        const double worked = rank.by_kind.sum();
        run(events, kind);
        after += rank.by_kind.sum() - worked;
    }
};
}  // namespace

static SpanKind kind_of(const Action& work) {
    if (work.kind == Action::Weight) return SpanKind::Weight;
    return work.kind == Action::Forward ? SpanKind::Forward : SpanKind::Backward;
}

// The messages on their way, by sender and receiver: places in StageRun::sent.
using Routes = std::map<std::pair<int, int>, std::deque<size_t>>;

// Runs a stage until it waits: for a message that is not sent yet, or for a buffer of its own. Returns
// whether an action ran.
static bool advance(std::vector<StageRun>& runs, int stage, const PipelineShape& shape, Routes& routes) {
    StageRun& run = runs[size_t(stage)];
    const size_t first = run.next;
    for (; run.next < run.actions.size(); run.next++) {
        const Action& a = run.actions[run.next];
        if (a.kind == Action::Recv) {
            std::deque<size_t>& waiting = routes[{a.peer, stage}];
            if (waiting.empty()) break;
            run.receive(runs[size_t(a.peer)].sent[waiting.front()]);
            waiting.pop_front();
            continue;
        }
        const size_t at = run.place(a, shape);
        const std::vector<RankEvent>& events = run.times.events[at];
        if (a.kind == Action::Send) {
            if (const Message* before = run.in_buffer()) {
                if (before->received < 0) break;
                run.wait_until(before->received);
            }
            routes[{stage, a.peer}].push_back(run.sent.size());
            run.send(events, run.times.message[at]);
            continue;
        }
        run.run(events, kind_of(a), a.chunk, a.micro);
    }
    return run.next > first;
}

// All stages sum the gradient norm, then all update.
static void end_step(std::vector<StageRun>& runs) {
    double summed = 0;
    for (StageRun& run : runs) {
        for (const Message& m : run.sent) run.wait_until(m.received);
        run.end(run.times.norm, SpanKind::Norm);
        summed = std::max(summed, run.rank.now);
    }
    for (StageRun& run : runs) {
        run.rank.now = summed;
        run.end(run.times.after, SpanKind::Update);
    }
}

static std::vector<StageRun> run_stages(const PipelineShape& shape,
                                        const std::vector<const StageTimes*>& stages, bool draws) {
    std::vector<StageRun> runs;
    for (int s = 0; s < shape.stages; s++) {
        const StageTimes& t = *stages[size_t(s)];
        runs.push_back({.times = t,
                        .places = Places(t),
                        .actions = pipeline_schedule(shape, s),
                        .buffers = size_t(send_buffers(shape)),
                        .draws = draws});
        runs.back().run(t.before, SpanKind::Clear);
    }
    Routes routes;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < shape.stages; s++) moved |= advance(runs, s, shape, routes);
    }
    for (const StageRun& run : runs)
        CHECK(run.next == run.actions.size(), "a stage waits for a message that is not sent or not received");
    end_step(runs);
    return runs;
}

static double seconds_of(const std::vector<StageRun>& runs) {
    double seconds = 0;
    for (const StageRun& run : runs) seconds = std::max(seconds, run.rank.now);
    return seconds;
}

static size_t busiest_of(const std::vector<StageRun>& runs) {
    const auto less = [](const StageRun& a, const StageRun& b) {
        return a.rank.by_kind.sum() < b.rank.by_kind.sum();
    };
    return size_t(std::max_element(runs.begin(), runs.end(), less) - runs.begin());
}

static StepTime time_of(const std::vector<StageRun>& runs) {
    const StageRun& busiest = runs[busiest_of(runs)];
    StepTime step = {.seconds = seconds_of(runs), .by_kind = busiest.rank.by_kind, .after = busiest.after};
    step.bubble = std::max(0.0, step.seconds - step.by_kind.sum());
    return step;
}

static StepTime simulate(const PipelineShape& shape, const std::vector<const StageTimes*>& stages) {
    return time_of(run_stages(shape, stages, false));
}

// The shape with fewer micro-batches.
static PipelineShape with_micros(PipelineShape shape, int micros) {
    shape.micros = micros;
    return shape;
}

// Micro-batches beyond the pipeline's filling and emptying add the same time each: a step of more than `many`
// is that of `many`, and the difference between both for each further one. By layers more micro-batches hide
// more of the copies, so all of them run.
namespace {
struct Fewer {
    int few, many;

    explicit Fewer(const PipelineShape& shape) : few(6 * shape.stages), many(8 * shape.stages) {}
    bool runs_all(const PipelineShape& shape) const { return shape.layers || shape.micros <= many; }
    double more(const PipelineShape& shape) const { return double(shape.micros - many) / (many - few); }
};
}  // namespace

StepTime step_time(const PipelineShape& shape, const std::vector<const StageTimes*>& stages,
                   Simulated micros) {
    const Fewer fewer(shape);
    if (micros == Simulated::All || fewer.runs_all(shape)) return simulate(shape, stages);
    const StepTime a = simulate(with_micros(shape, fewer.few), stages);
    const StepTime b = simulate(with_micros(shape, fewer.many), stages);
    const double more = fewer.more(shape);
    const auto grown = [&](auto member) { return b.*member + more * (b.*member - a.*member); };
    const auto grown_kind = [&](double SecondsByKind::*p) {
        return b.by_kind.*p + more * (b.by_kind.*p - a.by_kind.*p);
    };
    return {.seconds = grown(&StepTime::seconds),
            .by_kind = {.products = grown_kind(&SecondsByKind::products),
                        .attention = grown_kind(&SecondsByKind::attention),
                        .memory = grown_kind(&SecondsByKind::memory),
                        .exposed = grown_kind(&SecondsByKind::exposed),
                        .hidden = grown_kind(&SecondsByKind::hidden)},
            .after = b.after,
            .bubble = std::max(0.0, grown(&StepTime::bubble))};
}

// ---------------------------------------------------------------------------------------------------------
// a drawing

static std::vector<double> waits_of(const std::vector<StageRun>& runs) {
    std::vector<double> waits;
    const double seconds = seconds_of(runs);
    for (const StageRun& run : runs) waits.push_back(std::max(0.0, seconds - run.rank.by_kind.sum()));
    return waits;
}

DrawnStep draw_step(const PipelineShape& shape, const std::vector<const StageTimes*>& stages) {
    const Fewer fewer(shape);
    const bool whole = fewer.runs_all(shape);
    const int drawn = whole ? shape.micros : fewer.few;
    std::vector<StageRun> runs = run_stages(with_micros(shape, drawn), stages, true);
    DrawnStep d = {.stages = {},
                   .waits = waits_of(runs),
                   .busiest = int(busiest_of(runs)),
                   .seconds = seconds_of(runs),
                   .micros_left_out = shape.micros - drawn};
    for (StageRun& run : runs) d.stages.push_back(std::move(run.spans));
    if (whole) return d;
    const std::vector<StageRun> longer = run_stages(with_micros(shape, fewer.many), stages, false);
    const std::vector<double> waits = waits_of(longer);
    for (size_t s = 0; s < waits.size(); s++)
        d.waits[s] = waits[s] + fewer.more(shape) * (waits[s] - d.waits[s]);
    d.busiest = int(busiest_of(longer));
    d.cut = d.seconds / 2;
    d.seconds_left_out = step_time(shape, stages).seconds - d.seconds;
    return d;
}

}  // namespace price
