// The execution model: a grid of blocks of threads, each thread a fiber. Blocks run in turn; a thread runs
// until it waits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint3 { unsigned x, y, z; };

namespace emulator {

struct Block;
struct Hopper;
struct Stack;
using Site = const void*;           // an address in the code of a kernel; becomes file and line when reported

// A place in the source, passed by the wrappers of barriers and warp operations.
struct Place { const char* file; int line; };
inline bool operator==(const Place& a, const Place& b) { return a.line == b.line && a.file == b.file; }

struct AsyncCopy { void* to; const void* from; bool valid; Site site; };

struct Thread {
    uint3 index;
    unsigned number;                // in the block
    Block* block;
    Stack* stack;
    bool done;
    const char* waits_in;           // last barrier or warp operation, and its site
    Site site;
    uintptr_t noted_from, noted_to; // bytes of the last access reported by a helper
    bool noted_write;
    std::vector<AsyncCopy> copies;  // issued and not waited for
    std::vector<size_t> groups;     // number of copies at each commit
};

// A meeting of threads: the last to arrive performs the operation for every thread.
struct Barrier {
    int arrived = 0, any = 0, all = 1, count = 0;
    int result[3] = {};
    Place place{};
    Site site = nullptr;
    std::vector<Thread*> waiting;
};
struct Rendezvous {
    uint32_t mask = 0;
    int arrived = 0;
    const char* name = nullptr;
    Place place{};
    void* argument[32];
    Thread* thread[32];
};
struct Warp {
    Rendezvous open[4];             // with different masks
    uint32_t exited = 0, epoch = 0; // epoch: __syncwarps of the whole warp
};

struct Block {
    uint3 index;
    dim3 dimensions, grid;
    int count = 0, live = 0;        // threads; threads that have not exited
    uint32_t run = 0;               // serial number of this block in the process
    uint32_t epoch = 0;             // barriers passed
    std::byte* shared = nullptr;
    size_t dynamic_bytes = 0, shared_used = 0;
    size_t opted_in = 0;            // most dynamic bytes, by cudaFuncSetAttribute; 0: never called
    Barrier barrier;
    std::vector<Warp> warps;
    std::vector<Thread> threads;
    struct Static { const void* key; size_t at, bytes; };
    std::vector<Static> statics;    // objects of SMEM, in shared
    std::shared_ptr<Hopper> hopper; // hopper.h; null where nothing of it is used
};

extern constinit thread_local Thread* current;     // null: host code

// A kernel with its arguments.
struct Launch {
    const void* kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void (*call)(const void* arguments);
    std::shared_ptr<const void> arguments;
    size_t argument_bytes;
};

// Runs a launch; returns false where a check failed, and report() has the reason.
bool run(const Launch& launch);

// The message of the last failed check.
const std::string& report();
// Ends the running launch with a message: kernel, place, block and thread of `site`, and the given text.
[[noreturn, gnu::format(printf, 2, 3)]] void fail(Site site, const char* fmt, ...);
// The same, for another thread than the running thread.
[[noreturn]] void fail_at(const Thread* thread, Site site, const std::string& text);

// Of the calling thread, to be used by the wrappers below and by ptx.h.
using Operation = void (*)(void** argument, uint32_t mask);
int barrier(int predicate, int result, Place place);
void collective(const char* name, uint32_t mask, void* argument, Operation operation, Place place);
void sync_warp(uint32_t mask, Place place);
void yield();
void* static_shared(const void* key, size_t bytes);

}  // namespace emulator
