// The one mutable global of the project: what this rank is.
//
// A rank is a process or a thread. Read the context before a parallel region, never inside: OpenMP's workers
// have thread-locals of their own.
#pragma once
#include <cstddef>
#include <functional>

struct RankProgress;
struct Target;
struct Walk;

struct Context {
    int rank = 0;
    int memory_ranks = 1;           // ranks of this process that have one memory, the host's or a GPU's
    int host_ranks = 1;             // ranks of this machine
    int threads = 1;                // of this rank; every `omp parallel` says num_threads(context.threads)
    std::byte* scratch = nullptr;   // what ops may use between entry and return
    size_t scratch_bytes = 0;
    RankProgress* progress = nullptr;   // what the supervisor sees of it; null: nobody looks
    const std::function<void()>* undo = nullptr;    // fatal() calls it: removes what a start has made
    Walk* walk = nullptr;               // where ops are recorded (ops/walk.h); null: they only run
    const Target* target = nullptr;     // device that is planned for; null: the one of this build
    bool throw_on_fatal = false;    // tests and fuzzers: fatal() throws Fatal
};

inline thread_local Context context;
