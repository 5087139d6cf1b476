// Progress of each rank, on a page of memory shared with the supervisor.
//
// A rank writes plain stores, without a system call: cheap enough for every block of every micro-batch. The
// supervisor (base/guard/supervisor.h) reads the page, keeps the time, and prints from the page when the rank
// is dead.
//
// Tests make a rank fail as it enters a phase: FAULT=PHASE:STEP:ACTION[:RANK], as in FAULT=train:3:kill:1.
// Actions: kill, stop, exit, throw, segv, hang; a number: milliseconds added to every such phase; slow and a
// number: milliseconds added to every later beat, as on a slow machine; flip-weights and others of flip.h: a
// bit is flipped. The moment of the fault, by seconds_now(), goes to the file FAULT_STAMP.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>

#include "llmc/base/context.h"

inline namespace guard {

enum class Phase : int { Start, Load, Train, Evaluate, Sample, Save, End };

// Whom a wait is for: other ranks, who are to blame if they do not come; or the rank's own files and data.
enum class Awaits : int { Ranks, Own };

// A word read by another process during writes: every state of the text ends in a zero.
struct SharedWord {
    char text[64] = {};
    void operator=(const char* word) { strncpy(text, word ? word : "", sizeof text - 1); }
};

struct alignas(64) RankProgress {
    std::atomic<uint64_t> beats;        // number of heartbeats
    std::atomic<int64_t> step;
    std::atomic<Phase> phase;
    std::atomic<int> joined;            // rank + 1; 0: unused
    std::atomic<int> slow_ms;           // of a beat; tests
    SharedWord wait;                    // name of the wait that the rank is in (wait.h): "all_gather tp"
    std::atomic<Awaits> awaits;         // whom that wait is for
    std::atomic<double> patience;       // seconds that it may take, if longer than a hang; 0: no longer

    bool waits_for_ranks() const { return wait.text[0] && awaits == Awaits::Ranks; }
};

// Starts as zeros: fresh memory from the kernel.
struct ProgressPage {
    static constexpr int kMostRanks = 1024; // as threads of a process
    std::atomic<int> world;                 // ranks of the job
    std::atomic<int> used;                  // number of `ranks` up to the last joined
    std::atomic<int> dying;                 // 1 + place in `ranks` of the thread that raised the fatal signal
    std::atomic<bool> spoken;               // a rank of this process has asked to print the error line
    std::atomic<bool> all_is_shown;         // output waits for its reader, and is never dropped
    std::atomic<bool> expected;             // the exit code is intended
    std::atomic<double> hang_timeout;       // run.hang_timeout
    // Ranks of other processes, by their files in run.dir (train/log/rank_file.h).
    std::atomic<uint64_t> others;           // count of their visible progress
    std::atomic<double> news_delay;         // seconds until progress is visible, at most
    SharedWord silent_other;                // a rank with an old file: "rank 3 on node2"; empty: none
    // With run.elastic, by the agent of this rank:
    std::atomic<int64_t> stopped;           // generations up to this one are over
    std::atomic<int64_t> leaves;            // these end after a step, for ranks that join
    std::atomic<int64_t> writes;            // by the rank: 1 + number of the image that it writes; 0: none
    std::atomic<int> writes_place;          // of that image
    std::atomic<uint64_t> agent_beats;      // of the agent itself
    std::atomic<int64_t> safe_step;         // the image of this number lies where a lost node leaves it
    RankProgress ranks[kMostRanks];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

inline ProgressPage* progress_page = nullptr;   // set before there is a second thread; null: unsupervised

// Memory for a page, shared with children; null: none.
ProgressPage* make_progress_page();
// Before a supervised program starts itself anew by exec: the new program finds the page and its supervisor.
// False: impossible.
bool keep_progress_page();
// After the fork, in a parent with several children: each has a page of its own.
void close_page_file();
// In a program that may have been started anew: sets progress_page. False: there is no supervisor.
bool found_progress_page();

// Makes this thread a rank of `world`. local: its number in the process.
void join_progress(int rank, int world, int local = 0);

void be_slow(int ms);               // sleeps, for the action slow

// Called by each heartbeat of this thread; null: nobody listens. run_on_rank_0() tells the waiting ranks.
inline thread_local const std::function<void()>* on_beat = nullptr;
struct BeatListener {
    const std::function<void()>* const before = on_beat;
    explicit BeatListener(const std::function<void()>* f) { on_beat = f; }
    ~BeatListener() { on_beat = before; }
    BeatListener(const BeatListener&) = delete;
};

// Heartbeat: this rank made progress.
inline void beat() {
    if (on_beat) (*on_beat)();
    RankProgress* const p = context.progress;
    if (!p) return;
    p->beats.store(p->beats.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (const int ms = p->slow_ms.load(std::memory_order_relaxed)) be_slow(ms);
}

// Starts a phase of this rank in a step.
void phase(Phase p, int64_t step);

const char* name_of(Phase p);       // "train"

}  // namespace guard
