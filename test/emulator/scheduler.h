// Inside the emulation: a machine per OS thread runs one block at a time.
#pragma once
#include <random>
#include <string>

#include "test/emulator/counters.h"
#include "test/emulator/thread.h"

namespace emulator {

// AddressSanitizer has larger frames, and has to be told of every change of stack.
#ifdef __SANITIZE_ADDRESS__
inline constexpr size_t kStackBytes = 256 << 10;
#else
inline constexpr size_t kStackBytes = 64 << 10;
#endif
inline constexpr size_t kMaxStackMemory = 1024 * (kStackBytes + 4096);
inline constexpr size_t kSharedBytes = 320 << 10;      // dynamic, then static objects; red zones between

struct Stack {
    std::byte* low = nullptr;
    void* top = nullptr;                     // saved stack pointer
    void* sanitizer = nullptr;               // AddressSanitizer's state
};

struct Machine {
    const Launch* launch = nullptr;          // the running launch
    Block block;
    std::vector<Stack*> stacks, free_stacks; // every stack; stacks without a thread
    std::vector<Thread*> ready;              // a stack: depth first
    Stack host;                              // of the thread that launched
    size_t host_bytes = 0;
    Stack* on = &host;
    std::byte* stack_memory = nullptr;
    std::byte* shared_memory = nullptr;
    bool failed = false;
    std::string report;
    uint64_t launches = 0;
    uint32_t first_run = 0, last_run = 0;    // of the launch's blocks, the numbers of the first and the last
    std::mt19937_64 random;
    KernelCount* count = nullptr;            // of the running kernel
    AccessLog log;

    ~Machine();
};
extern constinit thread_local Machine* machine;
Machine& this_machine();

void run_block(Machine& m);                                  // until its threads have ended, or to a failure
void suspend();                                              // the current thread waits, another runs
void wake(std::vector<Thread*>& waiting, bool current_too);  // makes ready, also the current thread, in order
void make_ready(Thread** threads, size_t count);
[[noreturn]] void leave_launch();                            // abandons every fiber; run_block returns
bool open_barrier_if_complete(Block& block);
std::string place_of(Site site);          // file:line, and the lines of callers by inlining
std::string kernel_name(const void* address);               // of the function at the address
void start_launch_of_checks();

}  // namespace emulator
