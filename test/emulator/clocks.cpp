#include "test/emulator/clocks.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/scheduler.h"

namespace emulator {

// A thread's own count begins at 2: accesses before the clocks have 1, which nobody else has reached.
void begin_clocks(Clocks& c, const Block& b) {
    if (!checks_compiled_in) return;
    const size_t count = size_t(b.count);
    c.threads.assign(count, Clock(count + kMostAgents));
    for (size_t i = 0; i < count; i++) c.threads[i][i] = 2;
    c.fences.resize(count);
    c.began = next_time();
    c.epoch = uint16_t(b.epoch);
    for (const Warp& w : b.warps) c.warp_epochs.push_back(uint16_t(w.epoch));
}

void join(Clock& into, const Clock& other) {
    if (into.empty()) into = other;
    for (size_t i = 0; i < other.size(); i++) into[i] = std::max(into[i], other[i]);
}

void pass_on(Clocks& c, unsigned thread, Clock& to) {
    if (c.threads.empty()) return;
    join(to, c.threads[thread]);
    c.threads[thread][thread]++;
}

void take_over(Clocks& c, unsigned thread, const Clock& from) {
    if (!c.threads.empty() && !from.empty()) join(c.threads[thread], from);
}

void fence_stores(Clocks& c, unsigned thread) {
    if (c.threads.empty()) return;
    c.fences[thread].push_back(c.threads[thread][thread]++);
}

static void meet(Clocks& c, unsigned first, unsigned end, uint32_t mask) {
    Clock all;
    const auto comes = [&](unsigned i) { return mask >> i % 32 & 1; };
    for (unsigned i = first; i < end; i++)
        if (comes(i)) pass_on(c, i, all);
    for (unsigned i = first; i < end; i++)
        if (comes(i)) take_over(c, i, all);
}
void meet_in_block(Block& b) {
    if (b.hopper && checks_compiled_in) meet(b.hopper->clocks, 0, unsigned(b.count), ~0u);
}
void meet_in_warp(Block& b, unsigned warp, uint32_t mask) {
    if (b.hopper && checks_compiled_in)
        meet(b.hopper->clocks, 32 * warp, std::min(32 * warp + 32, unsigned(b.count)), mask);
}

// ---------------------------------------------------------------------------------------------------------
// checks

// What is about to be recorded: by a thread, or beside one.
struct Now {
    Clocks& clocks;
    const Clock& seen;
    const Thread* thread;
    Access access;
    bool agent, shared;
};

static uint32_t count_of(const Clocks& c, const Access& a) {
    return a.time <= c.began ? 1 : a.epoch | uint32_t(a.warp_epoch) << 16;
}
static size_t place_in_clock(const Clocks& c, const Access& a) {
    return a.thread < kFirstAgent ? a.thread : c.threads.size() + a.thread - kFirstAgent;
}

static bool ordered(const Access& before, const Now& now) {
    if (before.run == 0 || (before.atomic && now.access.atomic)) return true;
    if (before.run != now.access.run) return across_blocks(before, now.access, now.shared);
    const Clocks& c = now.clocks;
    if (before.time <= c.began) {
        const unsigned warp = before.thread / 32;
        if (before.epoch != c.epoch) return true;
        if (warp == now.thread->number / 32 && before.warp_epoch != c.warp_epochs[warp]) return true;
    }
    return now.seen[place_in_clock(c, before)] >= count_of(c, before);
}

// A thread's access that threads see as over is so for TMA and wgmma where the thread has fenced it first:
// its store before they read or write, its read before they write.
static void check_fenced(const Access& before, bool stored, const Now& now, bool writes, Site site) {
    if (!now.agent || before.run != now.access.run || before.thread >= kFirstAgent) return;
    const auto& fences = now.clocks.fences[before.thread];
    const auto fence = std::lower_bound(fences.begin(), fences.end(), count_of(now.clocks, before));
    if (fence != fences.end() && now.seen[before.thread] > *fence) return;
    fail_at(now.thread, site,
            fmt::format("{} {} what {} has {} at {}, with no fence_proxy_async of that thread between",
                        agent_name(now.access), writes ? "writes" : "reads", thread_name(before),
                        stored ? "written" : "read", place_of(site_of(before))));
}

// The reader takes the place of a read that it has seen, or of its own; else one more.
static void add_reader(Cell& cell, size_t granule, const Now& now) {
    const auto gives_way = [&](const Access& r) {
        return r.run != now.access.run || r.thread == now.access.thread || ordered(r, now);
    };
    for (Access& r : cell.read)
        if (gives_way(r)) {
            r = now.access;
            return;
        }
    if (!now.shared) return;
    std::vector<Access>& more = now.clocks.readers[granule];
    const auto found = std::find_if(more.begin(), more.end(), gives_way);
    if (found == more.end()) more.push_back(now.access);
    else *found = now.access;
}

static void check_granule(Space& s, size_t granule, const Now& now, Kind kind, Site site) {
    const bool writes = kind != Kind::Read;
    const char* memory = now.shared ? "shared" : "global";
    Cell& cell = s.cells[granule];
    check_state(now.thread, s, granule, now.shared, kind, site);
    if (!ordered(cell.write, now)) race(now.thread, memory, cell.write, true, now.access, writes);
    check_fenced(cell.write, true, now, writes, site);
    if (!writes) return add_reader(cell, granule, now);
    const auto check_reader = [&](const Access& r) {
        if (!ordered(r, now)) race(now.thread, memory, r, false, now.access, true);
        check_fenced(r, false, now, true, site);
    };
    for (Access& r : cell.read) {
        check_reader(r);
        r.run = 0;
    }
    const auto more = now.clocks.readers.find(granule);
    if (now.shared && more != now.clocks.readers.end()) {
        for (const Access& r : more->second) check_reader(r);
        now.clocks.readers.erase(more);
    }
    cell.write = now.access;
    s.states[granule] = State::Written;
}

void check_by_clocks(const Thread& t, Space& s, size_t first, size_t last, Access access, Kind kind,
                     Site site) {
    Clocks& c = t.block->hopper->clocks;
    const Clock& seen = c.threads[t.number];
    access.epoch = uint16_t(seen[t.number]);
    access.warp_epoch = uint16_t(seen[t.number] >> 16);
    const Now now = {c, seen, &t, access, false, &s == &shared_space_of_machine()};
    for (size_t g = first; g <= last; g++) check_granule(s, g, now, kind, site);
}

void check_agent(Clocks& c, const Agent& a, const void* p, size_t bytes, bool writes) {
    if (c.threads.empty()) return;
    Space& mine = shared_space_of_machine();
    const bool shared = mine.holds(p);
    Space& s = shared ? mine : device_space();
    if (!s.holds(p)) fail_at(a.thread, a.site, fmt::format("TMA reads {}, which is no device memory", p));
    const Now now = {c, *a.seen, a.thread, access_by(a.number, a.count, a.site), true, shared};
    const size_t last = s.granule(static_cast<const std::byte*>(p) + bytes - 1);
    for (size_t g = s.granule(p); g <= last; g++)
        check_granule(s, g, now, writes ? Kind::Write : Kind::Read, a.site);
}

std::string agent_name(const Access& a) {
    return a.thread - kFirstAgent < unsigned(machine->block.count + 127) / 128 ? "wgmma" : "TMA";
}

}  // namespace emulator
