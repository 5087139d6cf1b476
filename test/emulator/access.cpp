// Checks of every access: bounds, alignment, initialisation, races.
//
// Kernels are compiled with -fsanitize=thread,alignment and linked without the sanitizers' libraries: GCC
// calls the hooks here at each load and store. Two accesses to a granule, at least one a write, are ordered
// in a thread; in a block with a __syncthreads in between; in a warp with a __syncwarp in between; and
// between blocks, if the first block published (access, __threadfence, atomic) before an atomic of the
// second. Other pairs race, in any order of execution here. Blocks that use Hopper's instructions have clocks
// in place of epochs (clocks.h).
#include "test/emulator/access.h"

#include <algorithm>
#include <unordered_map>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

extern "C" const char __executable_start, end;
extern "C" [[gnu::weak]] void __gcov_exit();           // there where lines are counted

namespace emulator {

struct Published { uint32_t fence = 0, fence_published = 0, at = 0, acquired = 0; };
static thread_local std::unordered_map<uint32_t, Published> published;     // by block of this launch
static thread_local uint32_t clock_now = 0;

uint32_t next_time() { return ++clock_now; }
static uint32_t offset(Site site) { return uint32_t(static_cast<const char*>(site) - &__executable_start); }
Site site_of(const Access& a) { return &__executable_start + a.site; }

bool across_blocks(const Access& before, const Access& now, bool shared) {
    if (shared || before.run < machine->first_run || before.run > machine->last_run) return true;   // others'
    const auto p = published.find(before.run), n = published.find(now.run);
    return p != published.end() && n != published.end() && before.time <= p->second.fence_published &&
           p->second.at <= n->second.acquired;
}

static bool in_order(const Access& before, const Access& now, bool shared) {
    if (before.run == 0) return true;
    if (before.run != now.run) return across_blocks(before, now, shared);
    if (before.thread == now.thread || before.epoch != now.epoch) return true;
    return before.thread / 32 == now.thread / 32 && before.warp_epoch != now.warp_epoch;
}

Access access_by(unsigned agent, uint32_t count, Site site) {
    return {machine->block.run, offset(site), ++clock_now, uint16_t(agent & 2047), 0, uint16_t(count),
            uint16_t(count >> 16)};
}

std::string thread_name(const Access& a) {
    const Block& b = machine->block;
    if (a.thread >= kFirstAgent) return agent_name(a);
    if (a.run != b.run) return fmt::format("a thread of another block (number {} in it)", a.thread);
    const uint3& i = b.threads[a.thread].index;
    return fmt::format("thread ({},{},{})", i.x, i.y, i.z);
}

[[noreturn]] void race(const Thread* thread, const char* memory, const Access& before, bool before_writes,
                       const Access& now, bool writes) {
    const std::string who = now.thread >= kFirstAgent ? agent_name(now) + " " : "";
    fail_at(thread, site_of(now),
            fmt::format("race on {} memory: {}{} what {} has {} at {}, with no {} between", memory, who,
                        writes ? "writes" : "reads", thread_name(before),
                        before_writes ? "written" : "read", place_of(site_of(before)),
                        before.thread >= kFirstAgent ? "wait" : "barrier"));
}

// Memory outside shared and device memory: stacks are the thread's registers, or the emulation's own.
static void check_other(const Thread* thread, const void* p, bool writes, Site site) {
    const char* at = static_cast<const char*>(p);
    const Machine& m = *machine;
    const char* thread_pointer = static_cast<const char*>(__builtin_thread_pointer());
    const auto within = [&](const void* start, size_t bytes) {
        return size_t(at - static_cast<const char*>(start)) < bytes;
    };
    if (within(thread_pointer - (1 << 20), 2 << 20)) return;
    const bool counter = __gcov_exit != nullptr;       // of lines, in the program's data
    if (!writes || counter)
        if (within(&__executable_start, size_t(&end - &__executable_start))) return;
    if (!writes && (within(&m, sizeof m) || within(m.launch->arguments.get(), m.launch->argument_bytes) ||
                    within(m.block.threads.data(), m.block.threads.size() * sizeof(Thread))))
        return;
    if (is_pinned(p)) return;
    fail_at(thread, site,
            fmt::format("{} {}, which is no device memory", writes ? "writes to" : "reads from", p));
}

void check_state(const Thread* thread, Space& s, size_t granule, bool shared, Kind kind, Site site) {
    const State state = s.states[granule];
    const char* verb = kind == Kind::Read ? "reads" : "writes";
    if (state == State::Outside)
        fail_at(thread, site, fmt::format("out of bounds: {} {} memory outside of any {}", verb,
                                          shared ? "shared" : "global", shared ? "object" : "tensor"));
    if (state == State::Unwritten && kind != Kind::Write)
        fail_at(thread, site, "reads shared memory that nobody has written");
    if (state == State::Barrier)
        fail_at(thread, site, fmt::format("{} an mbarrier as if it were data", verb));
    if (state == State::Pending)
        fail_at(thread, site,
                fmt::format("{} shared memory before the wait for an asynchronous copy to it, which {} "
                            "issued at {}",
                            verb, thread_name(s.cells[granule].write),
                            place_of(site_of(s.cells[granule].write))));
}

static void check_race(const Thread* thread, Cell& c, const Access& now, bool shared, bool writes) {
    const char* memory = shared ? "shared" : "global";
    if (!(now.atomic && c.write.atomic) && !in_order(c.write, now, shared))
        race(thread, memory, c.write, true, now, writes);
    if (writes) {
        for (const Access& r : c.read)
            if (!(now.atomic && r.atomic) && !in_order(r, now, shared))
                race(thread, memory, r, false, now, true);
        c.write = now;
        return;
    }
    // two readers of different threads are enough: a writer conflicts with at least one
    const Access& first = c.read[0];
    const bool replace = first.run != now.run || first.epoch != now.epoch || first.thread == now.thread ||
                         (first.thread / 32 == now.thread / 32 && first.warp_epoch != now.warp_epoch);
    c.read[replace ? 0 : 1] = now;
}

void check_access(const Thread* thread, const void* p, size_t bytes, Kind kind, Site site) {
    if (!checks_compiled_in) return;
    Machine& m = *machine;
    const bool writes = kind != Kind::Read;
    if (size_t(static_cast<const std::byte*>(p) - m.stack_memory) < kMaxStackMemory) {
        if (m.block.hopper) [[unlikely]] touch_registers(*thread, p, bytes, writes, site);
        return;
    }
    Space& mine = shared_space_of_machine();
    const bool shared = mine.holds(p);
    Space& s = shared ? mine : device_space();
    if (!s.holds(p)) return check_other(thread, p, writes, site);
    const Block& b = *thread->block;
    Access now = {b.run, offset(site), ++clock_now, uint16_t(thread->number & 1023), kind == Kind::Atomic,
                  uint16_t(b.epoch), uint16_t(b.warps[thread->number / 32].epoch)};
    if (kind == Kind::Atomic && !shared) {
        Published& mine_published = published[b.run];
        if (mine_published.fence) {
            mine_published.fence_published = mine_published.fence;
            mine_published.at = clock_now;
        }
        mine_published.acquired = clock_now;
    }
    const size_t first = s.granule(p), last = s.granule(static_cast<const std::byte*>(p) + bytes - 1);
    if (b.hopper) [[unlikely]] return check_by_clocks(*thread, s, first, last, now, kind, site);
    for (size_t g = first; g <= last; g++) {
        check_state(thread, s, g, shared, kind, site);
        check_race(thread, s.cells[g], now, shared, writes);
        if (writes) s.states[g] = State::Written;
    }
}

// The copy may arrive at any time from now: a write now, and no thread may touch the bytes until the wait.
void check_copy_issued(const Thread* thread, const AsyncCopy& copy) {
    if (!checks_compiled_in) return;
    if (copy.valid) check_access(thread, copy.from, 16, Kind::Read, copy.site);
    check_access(thread, copy.to, 16, Kind::Write, copy.site);
    Space& s = shared_space_of_machine();
    std::fill_n(s.states + s.granule(copy.to), 16 / kGranule, State::Pending);
}

// The copy may have read its source as late as now.
void check_copy_done(const Thread* thread, const AsyncCopy& copy) {
    if (!checks_compiled_in) return;
    if (copy.valid) check_access(thread, copy.from, 16, Kind::Read, copy.site);
    Space& s = shared_space_of_machine();
    std::fill_n(s.states + s.granule(copy.to), 16 / kGranule, State::Written);
    check_access(thread, copy.to, 16, Kind::Write, copy.site);
}

void start_launch_of_checks() { published.clear(); }

}  // namespace emulator

void __threadfence() {
    if (emulator::checks_compiled_in)
        emulator::published[emulator::current->block->run].fence = ++emulator::clock_now;
}

// ---------------------------------------------------------------------------------------------------------
// hooks; a sanitizer has its own
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

using emulator::Kind;

[[gnu::always_inline]] static inline void hook(const volatile void* address, size_t bytes, Kind kind,
                                               bool aligned, emulator::Site site) {
    const emulator::Thread* t = emulator::current;
    if (!t) return;
    const void* p = const_cast<const void*>(address);
    if (aligned && reinterpret_cast<uintptr_t>(p) % bytes)
        emulator::fail(site, "misaligned: an access of %zu bytes at %p", bytes, p);
    emulator::check_access(t, p, bytes, kind, site);
    if (emulator::settings.count) [[unlikely]]
        emulator::note_plain(p, bytes, kind != Kind::Read, site);
}

#define SITE __builtin_return_address(0)
#define HOOKS(n)                                                                                     \
    void __tsan_read##n(void* p) { hook(p, n, Kind::Read, true, SITE); }                             \
    void __tsan_write##n(void* p) { hook(p, n, Kind::Write, true, SITE); }                           \
    void __tsan_unaligned_read##n(void* p) { hook(p, n, Kind::Read, false, SITE); }                  \
    void __tsan_unaligned_write##n(void* p) { hook(p, n, Kind::Write, false, SITE); }                \
    void __tsan_volatile_read##n(void* p) { hook(p, n, Kind::Atomic, true, SITE); }                  \
    void __tsan_volatile_write##n(void* p) { hook(p, n, Kind::Atomic, true, SITE); }
#define ATOMIC_HOOKS(bits, T)                                                                              \
    T __tsan_atomic##bits##_load(const volatile T* p, int) {                                               \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        return *p;                                                                                         \
    }                                                                                                      \
    void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                                            \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        *p = v;                                                                                            \
    }                                                                                                      \
    T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int, int) {               \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        const T old = *p;                                                                                  \
        if (old == expected) *p = v;                                                                       \
        return old;                                                                                        \
    }                                                                                                      \
    T __tsan_atomic##bits##_fetch_add(volatile T* p, T v, int) {                                            \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        const T old = *p;                                                                                  \
        *p = T(old + v);                                                                                   \
        return old;                                                                                        \
    }                                                                                                      \
    T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                                            \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        const T old = *p;                                                                                  \
        *p = v;                                                                                            \
        return old;                                                                                        \
    }                                                                                                      \
    bool __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* expected, T v, int, int) {        \
        hook(p, sizeof(T), Kind::Atomic, true, SITE);                                                      \
        const T old = *p, wanted = *expected;                                                              \
        *expected = old;                                                                                   \
        if (old == wanted) *p = v;                                                                         \
        return old == wanted;                                                                              \
    }

extern "C" {
void __tsan_init() { emulator::checks_compiled_in = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
void __tsan_read_range(void* p, size_t n) { if (n) hook(p, n, Kind::Read, false, SITE); }
void __tsan_write_range(void* p, size_t n) { if (n) hook(p, n, Kind::Write, false, SITE); }
ATOMIC_HOOKS(8, uint8_t) ATOMIC_HOOKS(16, uint16_t) ATOMIC_HOOKS(32, uint32_t) ATOMIC_HOOKS(64, uint64_t)

// -fsanitize=alignment: the alignment of the type at p
void __ubsan_handle_type_mismatch_v1(void* data, void* p) {
    struct Data { const char* file; uint32_t line, column; const void* type; unsigned char log_alignment; };
    if (emulator::current)
        emulator::fail(SITE, "misaligned: %p, where the type needs a multiple of %d", p,
                       1 << static_cast<Data*>(data)->log_alignment);
}
}
#endif
