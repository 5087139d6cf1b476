// The one way to wait. A wait that can block has a name: lines about deaths and hangs, run.dir/ranks and the
// pages show the name. A wait that cannot succeed ends early.
//
//     wait_until({.what = "loader", .on = Awaits::Own, .nap = 0.1}, [&] { return full; }, nap);
//     const Waiting named("MPI_Init");         // around a call that blocks by itself
//
// A rank that waits for other ranks is not to blame for a hang; a rank that waits on its own is (hangs.h).
#pragma once
#include <limits>
#include <thread>

#include "llmc/base/guard/progress_page.h"
#include "llmc/base/progress.h"

struct pollfd;

inline namespace guard {

// Called by every wait of this thread again and again; null: nothing to look for. An exception or fatal() in
// the call ends the wait: transports look for lost ranks.
inline thread_local const std::function<void()>* in_wait = nullptr;

// Seconds that this thread's rank has spent in named waits for other ranks.
inline thread_local double waited_for_ranks = 0;

// Names the wait of this rank for the time of a scope. The end is a heartbeat. Within a wait for other ranks
// the outer name stays; within a wait of the rank's own, a wait for other ranks takes over.
struct Waiting {
    // patience: seconds that the wait may take; 0: as run.hang_timeout says. A longer wait ends the job with
    // exit code 75: other ranks came late.
    explicit Waiting(const char* what, Awaits on = Awaits::Ranks, double patience = 0);
    ~Waiting();
    Waiting(const Waiting&) = delete;

private:
    RankProgress* rank = nullptr;       // null: the outer name stays
    double began = 0;                   // seconds_now()
    SharedWord outer;
};

// Completes the name of the current wait: "all_gather tp from rank 3 on node2".
void waits_for_peer(const std::string& peer);

// Seconds that ranks wait for late ranks at the start: two minutes, or run.hang_timeout where that is longer.
double start_patience();
// This rank's work is done: the remaining time is a wait for the other ranks.
void wait_for_the_end();

struct Wait {
    const char* what;                   // the name, where no Waiting around the wait has given one
    Awaits on = Awaits::Ranks;
    int spins = 0, yields = 0;          // looks before the first nap: _mm_pause(), sched_yield() between them
    double nap = 1e-3;                  // seconds between later looks
    double until = std::numeric_limits<double>::infinity();     // by seconds_now()
    bool beats = false;                 // each nap is a heartbeat: the wait may take any time
};

void sleep_for(double seconds);
// What happens between two looks. Returns the seconds to nap: 0: none, negative: the time is over.
double between_looks(const Wait& w, int64_t looks);

// Looks until done() returns true; returns false at w.until. nap(seconds) may end early, as a wait for a
// condition variable or a descriptor.
template <class Done, class Nap = void (*)(double)>
bool wait_until(const Wait& w, Done done, Nap nap = sleep_for) {
    const Waiting named(w.what, w.on);
    for (int64_t looks = 1; !done(); looks++) {
        const double seconds = between_looks(w, looks);
        if (seconds < 0) return false;
        if (seconds > 0) nap(seconds);
    }
    return true;
}

// Waits for an event of `count` descriptors; revents says which.
bool wait_for_files(const Wait& w, pollfd* files, size_t count);
// Joins a thread that may still work on `what`; no effect on a thread that was not made.
void join(std::thread& thread, const char* what);

}  // namespace guard
