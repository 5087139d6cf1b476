#include "llmc/train/price/step_time.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <utility>

#include "llmc/base/check.h"

// ---------------------------------------------------------------------------------------------------------
// all stages

// The micro-batch of a walk that stands for one of the step: the first, one of the last, or one between. The
// last ones of an interleaved schedule wait for sums of chunks that have ended.
static int stands_for(int micro, int micros, int walked) {
    if (micros <= walked) return micro;
    if (micro == 0) return 0;
    const int left = micros - micro;
    return left <= std::max(1, walked / 2) ? walked - left : 1 % walked;
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
    SecondsByKind by_kind = {};
    double idle = 0;  // waited for messages since the last forward or backward
    bool draws = false;
    std::vector<DrawnSpan> spans = {};

    size_t place(const Action& a, int micros) const {
        const auto it = places.at.find(Places::key(a, stands_for(a.micro, micros, times.micros)));
        CHECK(it != places.at.end(), "the walk of a stage lacks an action of chunk {}", a.chunk);
        return it->second;
    }
    // Work of `seconds` begins now. A send's own work belongs to what it sends.
    void run(const Action& a, double seconds) {
        if (draws && a.kind == Action::Send && !spans.empty()) spans.back().end += seconds;
        if (draws && a.kind != Action::Send)
            spans.push_back({.kind = a.kind == Action::Forward ? SpanKind::Forward : SpanKind::Backward,
                             .chunk = a.chunk,
                             .micro = a.micro,
                             .begin = now,
                             .end = now + seconds});
        now += seconds;
    }
};

// The seconds of the action at `at` of the walk: less is exposed after a wait for a message.
static SecondsByKind seconds_of_action(StageRun& run, const Action& a, size_t at) {
    SecondsByKind seconds = run.times.seconds[at];
    if (a.kind == Action::Send || run.times.carried.empty()) return seconds;
    const double passed = std::min(std::exchange(run.idle, 0), run.times.carried[at]);
    seconds.exposed -= passed;
    seconds.hidden += passed;
    return seconds;
}

using Messages = std::map<std::pair<int, int>, std::deque<double>>;  // arrivals, by sender and receiver

// Runs a stage until it waits for a message that is not sent yet. Returns whether an action ran.
static bool advance(StageRun& run, int stage, int micros, Messages& messages) {
    const size_t first = run.next;
    for (; run.next < run.actions.size(); run.next++) {
        const Action& a = run.actions[run.next];
        if (a.kind == Action::Recv) {
            std::deque<double>& arrivals = messages[{a.peer, stage}];
            if (arrivals.empty()) break;
            run.idle += std::max(0.0, arrivals.front() - run.now);
            run.now = std::max(run.now, arrivals.front());
            arrivals.pop_front();
            continue;
        }
        const size_t at = run.place(a, micros);
        const SecondsByKind seconds = seconds_of_action(run, a, at);
        run.by_kind += seconds;
        run.run(a, seconds.sum());
        if (a.kind == Action::Send) messages[{stage, a.peer}].push_back(run.now + run.times.message[at]);
    }
    return run.next > first;
}

static std::vector<StageRun> run_stages(const PipelineShape& shape,
                                        const std::vector<const StageTimes*>& stages, bool draws) {
    std::vector<StageRun> runs;
    for (int s = 0; s < shape.stages; s++) {
        const StageTimes& t = *stages[size_t(s)];
        runs.push_back({.times = t,
                        .places = Places(t),
                        .actions = pipeline_schedule(shape, s),
                        .now = t.before.sum(),
                        .by_kind = t.before,
                        .draws = draws});
    }
    Messages messages;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < shape.stages; s++) moved |= advance(runs[size_t(s)], s, shape.micros, messages);
    }
    for (StageRun& run : runs) {
        CHECK(run.next == run.actions.size(), "a stage waits for a message that no stage sends");
        run.by_kind += run.times.norm;
        run.by_kind += run.times.after;
    }
    return runs;
}

// When the last stage has summed the gradient norm: then all update.
static double update_begins(const std::vector<StageRun>& runs) {
    double seconds = 0;
    for (const StageRun& run : runs) seconds = std::max(seconds, run.now + run.times.norm.sum());
    return seconds;
}

static double seconds_of(const std::vector<StageRun>& runs) {
    double update = 0;
    for (const StageRun& run : runs) update = std::max(update, run.times.after.sum());
    return update_begins(runs) + update;
}

static size_t busiest_of(const std::vector<StageRun>& runs) {
    const auto less = [](const StageRun& a, const StageRun& b) { return a.by_kind.sum() < b.by_kind.sum(); };
    return size_t(std::max_element(runs.begin(), runs.end(), less) - runs.begin());
}

static StepTime time_of(const std::vector<StageRun>& runs) {
    const StageRun& busiest = runs[busiest_of(runs)];
    const double after = busiest.times.norm.sum() + busiest.times.after.sum();
    StepTime step = {.seconds = seconds_of(runs), .by_kind = busiest.by_kind, .after = after};
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
// is that of `many`, and the difference between both for each further one.
namespace {
struct Fewer {
    int few, many;

    explicit Fewer(const PipelineShape& shape) : few(6 * shape.stages), many(8 * shape.stages) {}
    double more(const PipelineShape& shape) const { return double(shape.micros - many) / (many - few); }
};
}  // namespace

StepTime step_time(const PipelineShape& shape, const std::vector<const StageTimes*>& stages,
                   Simulated micros) {
    const Fewer fewer(shape);
    if (micros == Simulated::All || shape.micros <= fewer.many) return simulate(shape, stages);
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

static std::vector<DrawnSpan> spans_of(StageRun& run, double update_begins) {
    const double before = run.times.before.sum();
    std::vector<DrawnSpan> spans = {{SpanKind::Clear, 0, 0, 0, before}};
    spans.insert(spans.end(), run.spans.begin(), run.spans.end());
    spans.push_back({SpanKind::Norm, 0, 0, run.now, run.now + run.times.norm.sum()});
    spans.push_back({SpanKind::Update, 0, 0, update_begins, update_begins + run.times.after.sum()});
    std::erase_if(spans, [](const DrawnSpan& s) { return s.end <= s.begin; });
    return spans;
}

static std::vector<double> waits_of(const std::vector<StageRun>& runs) {
    std::vector<double> waits;
    for (const StageRun& run : runs) waits.push_back(std::max(0.0, seconds_of(runs) - run.by_kind.sum()));
    return waits;
}

DrawnStep draw_step(const PipelineShape& shape, const std::vector<const StageTimes*>& stages) {
    const Fewer fewer(shape);
    const bool whole = shape.micros <= fewer.many;
    const int drawn = whole ? shape.micros : fewer.few;
    std::vector<StageRun> runs = run_stages(with_micros(shape, drawn), stages, true);
    DrawnStep d = {.stages = {},
                   .waits = waits_of(runs),
                   .busiest = int(busiest_of(runs)),
                   .seconds = seconds_of(runs),
                   .micros_left_out = shape.micros - drawn};
    for (StageRun& run : runs) d.stages.push_back(spans_of(run, update_begins(runs)));
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
