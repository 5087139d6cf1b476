// Thread-local state of a rank: identity, scratch memory, progress and recorder.
//
// A rank is a process or a thread. Read the context before a parallel region, never inside: OpenMP's workers
// have thread-locals of their own.
#pragma once
#include <cstddef>
#include <functional>

inline namespace any_backend {
struct Target;
struct Walk;
}

inline namespace guard { struct RankProgress; }

inline namespace base {

struct Context {
    int rank = 0;
    int memory_ranks = 1;           // ranks of this process that share a memory, the host's or a GPU's
    int host_ranks = 1;             // ranks of this machine
    int threads = 1;                // of this rank; every `omp parallel` has num_threads(context.threads)
    std::byte* scratch = nullptr;   // temporary memory of an op, from entry to return
    size_t scratch_bytes = 0;
    RankProgress* progress = nullptr;   // heartbeat for the supervisor; null: unsupervised
    const std::function<void()>* undo = nullptr;    // called by fatal(): cleans up a failed start
    Walk* walk = nullptr;               // recorder of ops (ops/walk.h); null: ops run unrecorded
    const Target* target = nullptr;     // planned device; null: the device of this build
    bool throw_on_fatal = false;    // tests and fuzzers: fatal() throws Fatal
};

inline thread_local Context context;

}  // namespace base
