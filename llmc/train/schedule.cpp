#include "llmc/train/schedule.h"

#include <algorithm>
#include <tuple>

#include "llmc/base/check.h"

namespace {

using Works = std::vector<Action>;      // forwards and backwards only

// When a message travels: as soon as it can, which frees the sender, or no sooner than it is needed, which
// keeps the receiver's memory free.
enum class When { Early, Late };

// Forward i of a stage: micro-batches in groups of `stages`, a group through all chunks before the next.
Action forward(const PipelineShape& p, int i) {
    const int group = i / (p.stages * p.chunks), first = group * p.stages;
    const int size = std::min(p.stages, p.micros - first), within = i - first * p.chunks;
    return {Action::Forward, within / size, first + within % size};
}

// Backward i: the same, from the last chunk to the first.
Action backward(const PipelineShape& p, int i) {
    const Action f = forward(p, i);
    return {Action::Backward, p.chunks - 1 - f.chunk, f.micro};
}

// `ahead` forwards, then one forward and one backward in turn, then the backwards that are left.
Works one_and_one(const PipelineShape& p, int ahead) {
    const int all = p.micros * p.chunks;
    ahead = std::min(ahead, all);
    Works works;
    for (int i = 0; i < ahead; i++) works.push_back(forward(p, i));
    for (int i = 0; i < all; i++) {
        if (i + ahead < all) works.push_back(forward(p, i + ahead));
        works.push_back(backward(p, i));
    }
    return works;
}

struct Timetable {
    PipelineShape p;
    std::vector<Works> works;                    // of each stage
    std::vector<std::vector<int>> start;         // of each work; all take one unit of time
    std::vector<int> finish;                     // by part, direction and micro-batch; -1: not yet

    int parts() const { return p.stages * p.chunks; }
    int part(int stage, const Action& a) const { return a.chunk * p.stages + stage; }
    int& end_of(int part, Action::Kind kind, int micro) {
        return finish[size_t((part * 2 + (kind == Action::Backward)) * p.micros + micro)];
    }
    // When what a work needs is there; -1: not known yet.
    int ready(int stage, const Action& a) {
        const int own = part(stage, a);
        if (a.kind == Action::Forward) return own == 0 ? 0 : end_of(own - 1, Action::Forward, a.micro);
        if (own == parts() - 1) return end_of(own, Action::Forward, a.micro);
        return end_of(own + 1, Action::Backward, a.micro);
    }

    Timetable(const PipelineShape& shape, std::vector<Works> w)
        : p(shape), works(std::move(w)), start(size_t(p.stages)),
          finish(size_t(parts()) * 2 * size_t(p.micros), -1) {
        for (int now = 0, moved = 1; moved; now++) {
            moved = 0;
            std::vector<int*> ended;
            for (int s = 0; s < p.stages; s++) {
                const size_t i = start[size_t(s)].size();
                if (i == works[size_t(s)].size()) continue;
                const Action& a = works[size_t(s)][i];
                const int at = ready(s, a);
                if (at < 0) continue;
                start[size_t(s)].push_back(now);
                ended.push_back(&end_of(part(s, a), a.kind, a.micro));
                moved = 1;
            }
            for (int* e : ended) *e = now + 1;
        }
        for (int s = 0; s < p.stages; s++)
            CHECK(start[size_t(s)].size() == works[size_t(s)].size(), "pipeline: stage %d of %d waits for "
                  "ever", s, p.stages);
    }
};

// The list of one stage: its works, and the messages between.
std::vector<Action> with_messages(const PipelineShape& p, std::vector<Works> works, int stage, When when) {
    Timetable t(p, std::move(works));
    // time; activations, gradients, works; stage that acts or sends: one order of everything
    using Key = std::tuple<int, int, int>;
    std::vector<std::pair<Key, Action>> events;
    for (int s = 0; s < p.stages; s++)
        for (size_t i = 0; i < t.works[size_t(s)].size(); i++) {
            const Action& a = t.works[size_t(s)][i];
            const int start = t.start[size_t(s)][i], part = t.part(s, a);
            if (s == stage) events.push_back({{start, 2, s}, a});
            const bool forward = a.kind == Action::Forward;
            if (p.stages == 1 || part == (forward ? 0 : t.parts() - 1)) continue;

            const int source_part = forward ? part - 1 : part + 1, source = source_part % p.stages;
            const Action::Way way = forward ? Action::Activation : Action::Gradient;
            const Key key{forward && when == When::Early ? t.ready(s, a) : start, int(way), source};
            if (s == stage) events.push_back({key, {Action::Recv, a.chunk, a.micro, way, source}});
            if (source == stage)
                events.push_back({key, {Action::Send, source_part / p.stages, a.micro, way, s}});
        }
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
        return a.first < b.first;
    });
    std::vector<Action> list;
    for (const auto& e : events) list.push_back(e.second);
    return list;
}

}  // namespace

std::vector<Action> one_f_one_b(const PipelineShape& p, int stage) {
    CHECK(p.chunks == 1, "1f1b: %d chunks a stage", p.chunks);
    std::vector<Works> works;
    for (int s = 0; s < p.stages; s++) works.push_back(one_and_one(p, p.stages - 1 - s));
    return with_messages(p, std::move(works), stage, When::Late);
}

std::vector<Action> interleaved(const PipelineShape& p, int stage) {
    CHECK(p.stages > 1 && p.micros % p.stages == 0, "interleaved: %d micro-batches on %d stages", p.micros,
          p.stages);
    std::vector<Works> works;
    for (int s = 0; s < p.stages; s++)
        works.push_back(one_and_one(p, 2 * (p.stages - 1 - s) + (p.chunks - 1) * p.stages));
    return with_messages(p, std::move(works), stage, When::Early);
}

std::vector<Action> pipeline_schedule(const PipelineShape& p, int stage) {
    return p.chunks == 1 ? one_f_one_b(p, stage) : interleaved(p, stage);
}

std::vector<Action> forward_schedule(const PipelineShape& p, int stage) {
    Works works;
    for (int i = 0; i < p.micros * p.chunks; i++) works.push_back(forward(p, i));
    return with_messages(p, std::vector<Works>(size_t(p.stages), works), stage, When::Late);
}

int live_micros(const std::vector<Action>& list, int chunk) {
    const bool trains = std::any_of(list.begin(), list.end(),
                                    [](const Action& a) { return a.kind == Action::Backward; });
    const auto last = trains ? Action::Backward : Action::Forward;
    bool received = false;      // a chunk that receives its input holds it from then on
    for (const Action& a : list)
        received |= a.chunk == chunk && a.kind == Action::Recv && a.way == Action::Activation;
    int live = 0, most = 0;
    for (const Action& a : list) {
        if (a.chunk != chunk) continue;
        if (received ? a.kind == Action::Recv && a.way == Action::Activation : a.kind == Action::Forward)
            most = std::max(most, ++live);
        if (a.kind == last) live--;
    }
    return most;
}

int waiting_gradients(const std::vector<Action>& list) {
    int made = 0, sent = 0, most = 0;
    for (const Action& a : list) {
        const bool gradient = a.way == Action::Gradient;
        // what comes next takes the place of what was made last
        if (a.kind == Action::Backward || (a.kind == Action::Recv && gradient))
            most = std::max(most, made - sent);
        if (a.kind == Action::Send && gradient) sent++;
        if (a.kind != Action::Backward) continue;
        for (const Action& b : list) {
            const bool its = b.kind == Action::Send && b.way == Action::Gradient && b.chunk == a.chunk &&
                             b.micro == a.micro;
            if (its) { made++; break; }
        }
    }
    return most;
}
