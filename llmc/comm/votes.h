// Decisions of all ranks together.
//
// Each rank contributes a few numbers and receives their sums, added in the order of the ranks: equal bits,
// and so equal decisions, on every rank.
#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <span>
#include <vector>

#include "llmc/base/guard/signals.h"
#include "llmc/comm/axis.h"
#include "llmc/ops/walk.h"

inline namespace comm {

// values: on entry this rank's, on return the sums over the ranks. Many values travel in chunks, so that each
// gather needs little memory.
inline void sum_over(const Axis& ranks, std::span<double> values) {
    constexpr size_t kChunk = 4096;
    for (; ranks.size > 1 && !values.empty(); values = values.subspan(std::min(kChunk, values.size()))) {
        const auto mine = values.first(std::min(kChunk, values.size()));
        std::vector<double> all(mine.size() * size_t(ranks.size));
        ranks.all_gather(all.data(), mine.data(), mine.size());
        std::fill(mine.begin(), mine.end(), 0);
        for (size_t i = 0; i < all.size(); i++) mine[i % mine.size()] += all[i];
    }
}
template <size_t n>
std::array<double, n> sum_over(const Axis& ranks, std::array<double, n> values) {
    sum_over(ranks, std::span(values));
    return values;
}

// Runs f() on rank 0, then on the other ranks: an error of every rank is reported by rank 0 alone.
template <class F> auto on_rank_0_first(const Axis& ranks, F&& f) {
    const bool first = ranks.index == 0;
    if (!first) ranks.barrier();
    auto result = f();
    if (first) ranks.barrier();
    return result;
}

// Replaces `values`, a text or a vector, by those of rank 0, in broadcasts of at most so many values.
template <class Values> void take_from_rank_0(const Axis& ranks, Values& values) {
    constexpr uint64_t kAtOnce = 1 << 20;
    uint64_t count = values.size();
    ranks.broadcast(&count, 1, 0);
    values.resize(count);
    for (uint64_t at = 0; at < count; at += kAtOnce)
        ranks.broadcast(values.data() + at, std::min(kAtOnce, count - at), 0);
}

// Whether `mine` is true on any rank. False on a rank that walks: nothing interrupts a walk.
inline bool any_of(const Axis& ranks, bool mine) {
    return sum_over<1>(ranks, {double(mine)})[0] > 0 && !only_walks();
}

// Decisions on the small all-gather of each step (train/run/step_statistics.h). Every rank sends a number for
// each Word. The host receives the sums over ranks when it reads the step, on a GPU after the next step has
// begun: sums may be older than the work that ranks vote about. Sums include the work once `read` exceeds the
// value of `sent` at the start of the work.
struct Votes {
    // kSave, kStop, kRegroup: the rank received such a signal. kFree: the first of two words for work that
    // all ranks do together beside training.
    enum Word { kSave, kStop, kRegroup, kFree, kWords = kFree + 2 };
    using Words = std::array<double, kWords>;

    std::array<std::atomic<double>, kWords> mine = {};      // set by any thread of the rank
    Words sums = {};                                        // of the last step read
    int64_t sent = 0, read = 0;                             // number of calls of send(), of receive()

    Words send();                                           // this rank's words, for the next step
    void receive(const double* sums_of_all);                // kWords, of the oldest unread step
    void ask(const Signals& asked) {
        mine[kSave] = asked.save;
        mine[kStop] = asked.stop;
        mine[kRegroup] = asked.regroup;
    }
    Signals asked() const {
        return {.save = sums[kSave] > 0, .stop = sums[kStop] > 0, .regroup = sums[kRegroup] > 0};
    }
};

// Runs work() on rank 0 while the other ranks wait and see its progress: a beat() of the rank's thread is a
// small gather over the job, at most every 0.1 s. work() calls no collectives. heartbeat: beat(). Ranks on
// threads with a GPU each wait in comm::idle_barrier(), because work() may allocate device memory.
// Collective over the job.
using Heartbeat = std::function<void()>;
void run_on_rank_0(const Axis& world, const std::function<void(const Heartbeat& heartbeat)>& work);

// The largest `mine` of all ranks.
double largest_over(const Axis& ranks, double mine);

// The signals that any rank received: a signal may reach one rank only.
Signals agree(const Axis& ranks, const Signals& mine);

}  // namespace comm
