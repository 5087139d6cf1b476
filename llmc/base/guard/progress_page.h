// What each rank is doing, on a page of memory that it shares with its supervisor.
//
// A rank says it in plain stores, without a system call: cheap enough for every block of every micro-batch.
// The supervisor (base/guard/supervisor.h) reads the page, keeps the time, and prints from it when
// the rank is dead.
//
// Tests make a rank fail as it enters a phase: FAULT=PHASE:STEP:ACTION[:RANK], as in FAULT=train:3:kill:1.
// Actions: kill, stop, exit, throw, segv, hang; a number: milliseconds that every such phase takes longer;
// slow and a number: milliseconds that every beat from there on takes longer, as on a slow machine.
// The file FAULT_STAMP gets the moment, by seconds_now().
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>

#include "llmc/base/context.h"

enum class Phase : int { Start, Load, Train, Evaluate, Sample, Save, End };

// A word that another process reads while it is written: whatever it sees ends in a zero.
struct SharedWord {
    char text[32] = {};
    void operator=(const char* word) { strncpy(text, word ? word : "", sizeof text - 1); }
};

struct alignas(64) RankProgress {
    std::atomic<uint64_t> beats;        // counts whatever got further
    std::atomic<int64_t> step;
    std::atomic<Phase> phase;
    std::atomic<int> joined;            // rank + 1; 0: nobody is here
    std::atomic<int> slow_ms;           // of a beat; tests
    SharedWord collective;              // "all_gather tp" while it waits there, else empty
};

// Zeros are its beginning: it is memory fresh from the kernel.
struct ProgressPage {
    static constexpr int kSlots = 1024;     // ranks as threads
    std::atomic<int> world;                 // ranks of the job
    std::atomic<int> used;                  // slots, from the first to the last that is joined
    std::atomic<int> dying;                 // slot + 1 whose thread raised the signal that ends the process
    std::atomic<bool> spoken;               // the one line about this end is printed
    std::atomic<bool> all_is_shown;         // what it prints may wait for its reader, and is never dropped
    std::atomic<bool> expected;             // the process ends on purpose, and its code says why
    std::atomic<double> hang_timeout;       // run.hang_timeout
    RankProgress slots[kSlots];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);

inline ProgressPage* progress_page = nullptr;   // set before there is a second thread; null: unsupervised

// This thread is a rank, one of `world`. Ranks of one process have slots of their own.
void join_progress(int rank, int world, int slot = 0);

void be_slow(int ms);

// Heartbeat: this rank made progress.
inline void beat() {
    RankProgress* const p = context.progress;
    if (!p) return;
    p->beats.store(p->beats.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (const int ms = p->slow_ms.load(std::memory_order_relaxed)) be_slow(ms);
}

// From here on this rank is busy with that, for the step of that number.
void phase(Phase p, int64_t step);

// Its own part is done: what is left is a wait for the other ranks.
inline void wait_for_the_end() {
    if (RankProgress* p = context.progress) p->collective = "finalize";
}

const char* name_of(Phase p);       // "train"
