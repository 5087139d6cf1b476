// Barriers of Hopper: mbarriers in shared memory, named barriers, and the registers that warp groups pass on.
#include <algorithm>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/l2.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

static constexpr long kMostBytes = (1 << 20) - 1;      // announced and not come, of an mbarrier
static constexpr long kRegisters = 65536;

Hopper::Hopper(Block& b) : block(b), issued(size_t(b.count)) {
    const int of_thread = int(std::min(kRegisters / std::max(b.count, 1) / 8 * 8, 255L));
    groups.resize(size_t(b.count + 127) / 128);
    for (WarpGroup& g : groups) {
        g.agent = kFirstAgent + unsigned(&g - groups.data());
        g.registers = of_thread;
    }
    begin_clocks(clocks, b);
}

Hopper& hopper() {
    Block& b = *current->block;
    if (!b.hopper) b.hopper = std::make_shared<Hopper>(b);
    return *b.hopper;
}

size_t shared_offset(const void* p, size_t bytes, const char* what, Site site) {
    const Block& b = *current->block;
    const size_t at = size_t(static_cast<const std::byte*>(p) - b.shared);
    if (at + bytes > b.dynamic_bytes)
        fail(site, "out of bounds: %s at %p, which is not in the block's dynamic shared memory", what, p);
    return at;
}

void wait_in(const char* name, Site site, std::vector<Thread*>& waiting, std::function<std::string()> what) {
    Issued& mine = hopper().issued[current->number];
    current->waits_in = name;
    current->site = site;
    mine.waits_for = std::move(what);
    waiting.push_back(current);
    suspend();
    mine.waits_for = nullptr;
}

std::string waits_for(const Thread& t) {
    if (!t.block->hopper) return "";
    const auto& what = t.block->hopper->issued[t.number].waits_for;
    return what ? " " + what() : "";
}

// ---------------------------------------------------------------------------------------------------------
// mbarriers

void init_mbarrier(uint64_t* p, int arrivals) {
    const Site site = __builtin_return_address(0);
    Hopper& h = hopper();
    const size_t at = shared_offset(p, 8, "an mbarrier", site);
    if (at % 8) fail(site, "misaligned: an mbarrier at byte %zu of shared memory", at);
    if (arrivals < 1 || arrivals > 1048575) fail(site, "an mbarrier of %d arrivals", arrivals);
    if (h.mbarriers.contains(p)) fail(site, "the mbarrier at byte %zu is there already", at);
    const unsigned agent = kFirstAgent + unsigned(h.groups.size() + h.mbarriers.size());
    if (agent >= kFirstAgent + kMostAgents) fail(site, "the emulation has no more than 56 mbarriers");
    h.mbarriers[p] = {at, agent, arrivals, arrivals, 0, 0, current, 0, false, {}, {}, {}};
    if (!checks_compiled_in) return;
    check_access(current, p, 8, Kind::Write, site);
    const Space& s = shared_space_of_machine();
    std::fill_n(s.states + s.granule(p), 8 / kGranule, State::Barrier);
    h.mbarriers[p].made_at = h.clocks.threads[current->number][current->number];
}

void fence_mbarriers_by(const Thread* t) {
    for (auto& [p, b] : hopper().mbarriers) b.fenced |= b.made_by == t;
}
void fence_mbarriers() { fence_mbarriers_by(current); }

static Mbarrier& mbarrier_at(const void* p, Site site) {
    Hopper& h = hopper();
    const auto found = h.mbarriers.find(p);
    if (found == h.mbarriers.end())
        fail(site, "no mbarrier_init has made an mbarrier at %p", p);
    const Mbarrier& b = found->second;
    if (checks_compiled_in && h.clocks.threads[current->number][b.made_by->number] < b.made_at)
        fail(site, "race on shared memory: uses the mbarrier at byte %zu, which thread (%u,%u,%u) has made "
             "with no barrier between", b.at, b.made_by->index.x, b.made_by->index.y, b.made_by->index.z);
    return found->second;
}

static void end_phase_if_complete(Mbarrier& b) {
    if (b.missing || b.bytes) return;
    Hopper& h = *machine->block.hopper;
    b.phase++;
    b.missing = b.arrivals;
    if (checks_compiled_in) b.arrived.resize(h.clocks.threads[0].size());
    if (checks_compiled_in) b.arrived[size_t(h.block.count) + b.agent - kFirstAgent] = uint32_t(b.phase);
    b.complete = b.arrived;
    for (const Thread* t : b.waiting) take_over(h.clocks, t->number, b.complete);
    wake(b.waiting, false);
}

void bytes_come(Mbarrier& b, long bytes) {
    b.bytes -= bytes;
    end_phase_if_complete(b);
}

void arrive(uint64_t* p, unsigned bytes) {
    const Site site = __builtin_return_address(0);
    Mbarrier& b = mbarrier_at(p, site);
    if (b.missing == 0)
        fail(site, "arrives at the mbarrier at byte %zu, whose %d arrivals of phase %d have all come", b.at,
             b.arrivals, int(b.phase));
    if (b.bytes + long(bytes) > kMostBytes)
        fail(site, "the mbarrier at byte %zu is to wait for %ld bytes: at most %ld", b.at,
             b.bytes + long(bytes), kMostBytes);
    if (bytes && settings.l2_blocks) end_turn_on_l2();
    pass_on(hopper().clocks, current->number, b.arrived);
    b.bytes += bytes;
    b.missing--;
    end_phase_if_complete(b);
}

static std::string describe(const Mbarrier& b) {
    std::string text = fmt::format("at byte {} of shared memory, phase {} (parity {}):", b.at, b.phase,
                                   b.phase % 2);
    if (b.missing) text += fmt::format(" {} of {} arrivals are missing", b.missing, b.arrivals);
    if (b.missing && b.bytes) text += ",";
    if (b.bytes > 0) text += fmt::format(" {} bytes of loads are missing", b.bytes);
    if (b.bytes < 0) text += fmt::format(" {} bytes more have come than were announced", -b.bytes);
    return text;
}

void wait_for_phase(uint64_t* p, unsigned parity) {
    const Site site = __builtin_return_address(0);
    Mbarrier& b = mbarrier_at(p, site);
    if (parity > 1) fail(site, "waits for parity %u of an mbarrier: 0 or 1", parity);
    if (b.phase % 2 != parity) return take_over(hopper().clocks, current->number, b.complete);
    const uint64_t awaited = b.phase;
    wait_in("mbarrier_wait", site, b.waiting, [&b] { return describe(b); });
    if (b.phase != awaited + 1)
        fail(site, "the mbarrier at byte %zu has gone on to phase %d while this thread waited for phase %d: "
             "their parities are the same", b.at, int(b.phase), int(awaited));
}

// ---------------------------------------------------------------------------------------------------------
// named barriers

void named_barrier(int id, int threads, bool waits) {
    const Site site = __builtin_return_address(0);
    Thread* t = current;
    if (id < 1 || id > 15) fail(site, "named barrier %d: 1 to 15, and 0 is that of __syncthreads", id);
    if (threads < 32 || threads % 32 || threads > t->block->count)
        fail(site, "named barrier %d of %d threads: a multiple of 32, at most the block's %d", id, threads,
             t->block->count);
    NamedBarrier& b = hopper().named[size_t(id)];
    if (b.count && b.threads != threads)
        fail(site, "named barrier %d of %d threads, where others have come to one of %d at %s", id, threads,
             b.threads, place_of(b.site).c_str());
    if (b.came[t->number])
        fail(site, "comes twice to named barrier %d, which %d of %d threads have not come to", id,
             threads - b.count, threads);
    b.threads = threads;
    b.site = site;
    b.came[t->number] = true;
    Clocks& clocks = hopper().clocks;
    pass_on(clocks, t->number, b.arrived);
    if (++b.count == threads) {
        b.came.reset();
        b.count = 0;
        for (const Thread* other : b.waiting) take_over(clocks, other->number, b.arrived);
        if (waits) take_over(clocks, t->number, b.arrived);
        wake(b.waiting, waits);
    } else if (waits) {
        wait_in("barrier_sync", site, b.waiting, [&b, id] {
            return fmt::format("{}: {} of {} threads have come", id, b.count, b.threads);
        });
    }
}

// ---------------------------------------------------------------------------------------------------------
// registers: a block begins with as many for each thread as its size allows

void change_registers(int registers, bool more) {
    const Site site = __builtin_return_address(0);
    Hopper& h = hopper();
    WarpGroup& g = h.groups[current->number / 128];
    const size_t number = h.issued[current->number].changes++;
    if (registers < 24 || registers > 256 || registers % 8)
        fail(site, "%d registers a thread: a multiple of 8 from 24 to 256", registers);
    if (number == g.changes.size()) {
        if (more ? registers < g.registers : registers > g.registers)
            fail(site, "%s registers a thread, %d, where the warp group has %d", more ? "more" : "less",
                 registers, g.registers);
        g.changes.push_back({registers, 0, false, site});
    }
    const auto change = [&]() -> WarpGroup::Change& { return g.changes[number]; };
    if (change().registers != registers)
        fail(site, "%d registers a thread, where other warps of the group say %d", registers,
             change().registers);
    const long needed = 128L * (registers - g.registers);
    while (!change().granted && needed > h.free_registers)
        wait_in("registers_more", site, h.waiting_for_registers, [&h, needed] {
            return fmt::format("for {} registers, of which {} are free", needed, h.free_registers);
        });
    if (++change().came < 128 && !more) return;        // less: when the last has come
    if (change().granted) return;
    change().granted = true;
    h.free_registers -= needed;
    g.registers = registers;
    wake(h.waiting_for_registers, false);
}

}  // namespace emulator
