// Fibers: ten instructions switch stacks between threads. The ready list is a stack, to keep a warp together
// and its data in cache; an ending thread hands its stack to the next thread without a switch.
#include "test/emulator/scheduler.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/settings.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" void emulator_switch(void** from, void* to);
__asm__(R"(
.text
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size emulator_switch, .-emulator_switch
)");

namespace emulator {

constinit thread_local Thread* current = nullptr;
constinit thread_local Machine* machine = nullptr;

static constexpr size_t kMostStacks = 1024, kGuard = 4096;

// A guard page is a mapping of its own, of which a process may have 65,530: 32 threads' worth.
Machine::~Machine() {
    if (stack_memory) munmap(stack_memory, kMostStacks * (kStackBytes + kGuard));
    for (const Stack* s : stacks) delete s;
}

Machine& this_machine() {
    thread_local Machine mine;
    machine = &mine;
    return mine;
}

static void fiber_main();

#ifdef __SANITIZE_ADDRESS__
static void forget_frames(Stack* s) { __asan_unpoison_memory_region(s->low, kStackBytes); }
static void leave_stack(Stack* from, const Stack* to, bool forever) {
    const size_t bytes = to == &machine->host ? machine->host_bytes : kStackBytes;
    __sanitizer_start_switch_fiber(forever ? nullptr : &from->sanitizer, to->low, bytes);
}
static void enter_stack(const Stack* s) { __sanitizer_finish_switch_fiber(s->sanitizer, nullptr, nullptr); }
static void enter_first_time() {
    const void* low;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &low, &bytes);
    if (machine->host_bytes) return;
    machine->host.low = static_cast<std::byte*>(const_cast<void*>(low));
    machine->host_bytes = bytes;
}
#else
static void forget_frames(Stack*) {}
static void leave_stack(Stack*, const Stack*, bool) {}
static void enter_stack(const Stack*) {}
static void enter_first_time() {}
#endif

// The frame for the first switch to the stack: six registers and the return address. Tops are staggered:
// equal tops would share a few sets of the cache.
static void prepare(Stack* s, size_t number) {
    forget_frames(s);
    auto top = reinterpret_cast<uintptr_t>(s->low + kStackBytes - 64 - number % 61 * 192) & ~uintptr_t(15);
    void** frame = reinterpret_cast<void**>(top);
    *--frame = nullptr;
    *--frame = reinterpret_cast<void*>(fiber_main);
    for (int i = 0; i < 6; i++) *--frame = nullptr;
    s->top = frame;
}

static Stack* new_stack(Machine& m) {
    if (!m.stack_memory) {
        void* p = mmap(nullptr, kMostStacks * (kStackBytes + kGuard), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) abort();
        m.stack_memory = static_cast<std::byte*>(p);
    }
    const size_t number = m.stacks.size();
    if (number == kMostStacks) abort();
    std::byte* guard = m.stack_memory + number * (kStackBytes + kGuard);
    mprotect(guard, kGuard, PROT_NONE);
    m.stacks.push_back(new Stack{guard + kGuard});
    prepare(m.stacks.back(), number);
    return m.stacks.back();
}

static void switch_to(Stack* to) {
    Stack* from = machine->on;
    if (from == to) return;
    machine->on = to;
    leave_stack(from, to, false);
    emulator_switch(&from->top, to->top);
    enter_stack(from);
}

// Into the ready list, in the given order or in the order of the settings. Random order shuffles warps and
// lanes and keeps a warp together: some warps run far ahead.
void make_ready(Thread** threads, size_t count) {
    Machine& m = *machine;
    const size_t old = m.ready.size();
    m.ready.insert(m.ready.end(), threads, threads + count);
    const auto begin = m.ready.begin() + long(old);
    if (settings.order == Order::Forward) std::reverse(begin, m.ready.end());
    if (settings.order == Order::Random && count > 1) {
        const uint64_t key = m.random() | 1;
        const auto rank = [key](const Thread* t) {
            const uint64_t warp = (t->number / 32 + 1) * key, lane = (t->number + 1) * (key >> 7 | 1);
            return std::pair(warp * 0x9e3779b97f4a7c15, lane * 0x9e3779b97f4a7c15);
        };
        std::sort(begin, m.ready.end(), [&](const Thread* a, const Thread* b) { return rank(a) < rank(b); });
    }
}

static Thread* next_ready() {
    Machine& m = *machine;
    while (m.ready.empty())
        if (!a_load_arrives(m.block)) return nullptr;
    Thread* t = m.ready.back();
    m.ready.pop_back();
    return t;
}

static void resume(Thread* t) {
    Machine& m = *machine;
    if (!t->stack) {
        if (m.free_stacks.empty()) m.free_stacks.push_back(new_stack(m));
        t->stack = m.free_stacks.back();
        m.free_stacks.pop_back();
    }
    current = t;
    switch_to(t->stack);
}

static std::string where(const Thread& t);

// Deadlock: reports the waiting thread, and the first thread of every group waiting elsewhere.
[[noreturn]] static void deadlock() {
    const Block& b = machine->block;
    const Thread* first = nullptr;
    for (const Thread& t : b.threads)
        if (!t.done && (!first || std::string_view(t.waits_in) != "__syncthreads")) first = &t;
    std::string text = fmt::format("deadlock: waits in {}{}", first->waits_in, waits_for(*first));
    for (const Rendezvous& r : b.warps[first->number / 32].open) {
        if (!r.arrived) continue;
        uint32_t missing = r.mask;
        for (int i = 0; i < r.arrived; i++) missing &= ~(1u << r.thread[i]->number % 32);
        text += fmt::format(" with mask {:08x}: lanes {:08x} are missing", r.mask, missing);
    }
    for (size_t i = 0; i < b.threads.size(); ) {
        size_t end = i + 1;
        const Thread& t = b.threads[i];
        const auto same = [&](const Thread& u) {
            return u.done == t.done && (t.done || (u.site == t.site && u.number / 32 == t.number / 32));
        };
        while (end < b.threads.size() && same(b.threads[end])) end++;
        text += fmt::format("\n    threads {} to {} {}", i, end - 1,
                            t.done ? "have ended" : where(t).c_str());
        i = end;
    }
    fail_at(first, first->site, text);
}

static std::string where(const Thread& t) {
    return fmt::format("wait in {}{} at {}", t.waits_in, waits_for(t), place_of(t.site));
}

void suspend() {
    Thread* me = current;
    Thread* t = next_ready();
    if (!t) deadlock();
    if (t != me) resume(t);
}

void wake(std::vector<Thread*>& waiting, bool current_too) {
    std::vector<Thread*> woken;
    woken.swap(waiting);
    if (current_too && settings.order != Order::Forward) woken.push_back(current);
    if (settings.order != Order::Forward)              // there, in the order of arrival
        std::sort(woken.begin(), woken.end(), [](Thread* a, Thread* b) { return a->number < b->number; });
    make_ready(woken.data(), woken.size());
    woken.clear();
    if (waiting.empty()) waiting.swap(woken);          // keeps the memory
    if (current_too && settings.order != Order::Forward) suspend();
}

void leave_launch() {
    Machine& m = *machine;
    m.failed = true;
    current = nullptr;
    Stack* abandoned = m.on;
    m.on = &m.host;
    leave_stack(abandoned, &m.host, true);
    emulator_switch(&abandoned->top, m.host.top);
    abort();
}

// A thread of the block ends: a barrier waiting for this thread alone opens.
static void end_thread(Thread* t) {
    Block& b = *t->block;
    if (!t->copies.empty())
        fail(t->copies[0].site, "a thread ends without having waited for this asynchronous copy");
    t->done = true;
    b.live--;
    b.warps[t->number / 32].exited |= 1u << t->number % 32;
    if (b.hopper) hopper_thread_ends(*t);
    open_barrier_if_complete(b);
}

static void fiber_main() {
    enter_first_time();
    for (;;) {
        machine->launch->call(machine->launch->arguments.get());
        Thread* t = current;
        end_thread(t);
        Thread* next = next_ready();
        if (next && !next->stack) {
            next->stack = t->stack;
            t->stack = nullptr;
            current = next;
            continue;
        }
        machine->free_stacks.push_back(t->stack);
        t->stack = nullptr;
        if (next) {
            resume(next);
        } else if (t->block->live == 0) {
            current = nullptr;
            switch_to(&machine->host);
        } else {
            deadlock();
        }
    }
}

void run_block(Machine& m) {
    Block& b = m.block;
    std::vector<Thread*> all;
    for (Thread& t : b.threads) all.push_back(&t);
    m.ready.clear();
    make_ready(all.data(), all.size());
    resume(next_ready());                              // comes back when every thread has ended
    if (!m.failed) return;
    m.free_stacks = m.stacks;                          // their frames are abandoned
    for (size_t i = 0; i < m.stacks.size(); i++) prepare(m.stacks[i], i);
}

void yield() {
    current->waits_in = "a loop that lets others run";
    current->site = __builtin_return_address(0);
    machine->ready.insert(machine->ready.begin(), current);
    suspend();
}

}  // namespace emulator
