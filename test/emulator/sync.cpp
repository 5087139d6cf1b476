// Barriers and warp operations. Each is a meeting: every thread leaves a pointer to its argument, and the
// last to arrive performs the operation for every thread.
#include <algorithm>
#include <bit>
#include <cstring>

#include "llmc/base/check.h"
#include "test/emulator/access.h"
#include "test/emulator/clocks.h"
#include "test/emulator/device.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

#undef threadIdx
#undef blockIdx

namespace emulator {

static void open_barrier(Barrier& b, Block& block) {
    b.result[0] = b.any;
    b.result[1] = b.all;
    b.result[2] = b.count;
    b.arrived = b.any = b.count = 0;
    b.all = 1;
    block.epoch++;
    meet_in_block(block);
}

// Threads that have ended count as arrived.
bool open_barrier_if_complete(Block& block) {
    Barrier& b = block.barrier;
    if (!b.arrived || b.arrived < block.live) return false;
    open_barrier(b, block);
    wake(b.waiting, false);
    return true;
}

int barrier(int predicate, int result, Place place) {
    Thread* t = current;
    Block& block = *t->block;
    Barrier& b = block.barrier;
    t->waits_in = "__syncthreads";
    t->site = __builtin_return_address(0);
    if (b.arrived == 0) {
        b.place = place;
        b.site = t->site;
    } else if (!(b.place == place)) {
        fail(t->site, "divergent barrier: other threads of the block wait in the one at %s",
             place_of(b.site).c_str());
    }
    b.any |= predicate != 0;
    b.all &= predicate != 0;
    b.count += predicate != 0;
    if (++b.arrived >= block.live) {
        open_barrier(b, block);
        wake(b.waiting, true);
    } else {
        b.waiting.push_back(t);
        suspend();
    }
    return b.result[result];
}

static void check_mask(const Thread& t, const char* name, uint32_t mask, Site site) {
    const Block& b = *t.block;
    const uint32_t lane = t.number % 32, exited = b.warps[t.number / 32].exited;
    const int lanes = std::min(32, b.count - int(t.number / 32 * 32));
    if (!(mask >> lane & 1))
        fail(site, "%s with mask %08x, which does not name the calling lane", name, mask);
    if (mask & exited)
        fail(site, "%s with mask %08x: lanes %08x are missing, they have ended", name, mask, mask & exited);
    if (lanes < 32 && mask >> lanes)
        fail(site, "%s with mask %08x: lanes are missing, the warp has only %d", name, mask, lanes);
}

void collective(const char* name, uint32_t mask, void* argument, Operation operation, Place place) {
    Thread* t = current;
    t->waits_in = name;
    t->site = __builtin_return_address(0);
    check_mask(*t, name, mask, t->site);
    Warp& warp = t->block->warps[t->number / 32];
    Rendezvous* r = nullptr;
    for (Rendezvous& o : warp.open) {
        if (o.arrived && o.mask == mask) { r = &o; break; }
        if (!o.arrived && !r) r = &o;
    }
    if (!r) fail(t->site, "%s: the warp is in more than 4 operations at once", name);
    if (r->arrived == 0) {
        r->mask = mask;
        r->name = name;
        r->place = place;
    } else if (r->name != name || !(r->place == place)) {
        const Thread* other = r->thread[0];
        fail(t->site, "%s, while lane %u of the warp is in %s at %s", name, other->number % 32, r->name,
             place_of(other->site).c_str());
    }
    r->argument[t->number % 32] = argument;
    r->thread[r->arrived++] = t;
    if (r->arrived < std::popcount(mask)) return suspend();
    operation(r->argument, mask);
    static thread_local std::vector<Thread*> waiting;
    waiting.assign(r->thread, r->thread + r->arrived - 1);
    r->arrived = 0;
    wake(waiting, true);
}

void sync_warp(uint32_t mask, Place place) {
    const int lanes = std::min(32, current->block->count - int(current->number / 32 * 32));
    const uint32_t there = lanes == 32 ? ~0u : (1u << lanes) - 1;
    // in a last, shorter warp the existing lanes: the hardware treats the missing lanes as exited
    const uint32_t exited = current->block->warps[current->number / 32].exited;
    if (mask == ~0u) mask = there & ~exited;
    Warp* warp = &current->block->warps[current->number / 32];
    collective("__syncwarp", mask, warp, [](void** argument, uint32_t of) {
        Block& block = *current->block;
        Warp* const of_lane = static_cast<Warp*>(argument[std::countr_zero(of)]);
        of_lane->epoch++;
        meet_in_warp(block, unsigned(of_lane - block.warps.data()), of);
    }, place);
}

// ---------------------------------------------------------------------------------------------------------
// operations

static void shuffle(void** lanes, uint32_t mask, int (*source)(int lane, const Shuffled&)) {
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1)) continue;
        Shuffled& to = *static_cast<Shuffled*>(lanes[i]);
        const int from = source(i, to);
        if (!(mask >> from & 1))
            fail(current->site, "a shuffle: lane %d reads lane %d, which mask %08x does not name", i, from,
                 mask);
        memcpy(to.result, static_cast<Shuffled*>(lanes[from])->value, sizeof to.value);
    }
}
static int first_of(int lane, const Shuffled& s) { return lane & ~(s.width - 1); }
void shuffle_index(void** lanes, uint32_t mask) {
    shuffle(lanes, mask, [](int i, const Shuffled& s) {
        return first_of(i, s) + (s.lane_or_delta & (s.width - 1));
    });
}
void shuffle_up(void** lanes, uint32_t mask) {
    shuffle(lanes, mask, [](int i, const Shuffled& s) {
        return i - s.lane_or_delta < first_of(i, s) ? i : i - s.lane_or_delta;
    });
}
void shuffle_down(void** lanes, uint32_t mask) {
    shuffle(lanes, mask, [](int i, const Shuffled& s) {
        return i + s.lane_or_delta >= first_of(i, s) + s.width ? i : i + s.lane_or_delta;
    });
}
void shuffle_xor(void** lanes, uint32_t mask) {
    shuffle(lanes, mask, [](int i, const Shuffled& s) {
        return (i ^ s.lane_or_delta) >= first_of(i, s) + s.width ? i : i ^ s.lane_or_delta;
    });
}

static void vote(void** lanes, uint32_t mask, unsigned first, unsigned (*join)(unsigned, unsigned, int)) {
    unsigned result = first;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) result = join(result, *static_cast<unsigned*>(lanes[i]), i);
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) *static_cast<unsigned*>(lanes[i]) = result;
}
void vote_ballot(void** lanes, uint32_t mask) {
    vote(lanes, mask, 0, [](unsigned r, unsigned v, int i) { return r | v << i; });
}
void vote_any(void** lanes, uint32_t mask) {
    vote(lanes, mask, 0, [](unsigned r, unsigned v, int) { return r | v; });
}
void vote_all(void** lanes, uint32_t mask) {
    vote(lanes, mask, 1, [](unsigned r, unsigned v, int) { return r & v; });
}
void reduce_add(void** lanes, uint32_t mask) {
    vote(lanes, mask, 0, [](unsigned r, unsigned v, int) { return r + v; });
}
void reduce_max(void** lanes, uint32_t mask) {
    vote(lanes, mask, 0, [](unsigned r, unsigned v, int) { return std::max(r, v); });
}
void reduce_min(void** lanes, uint32_t mask) {
    vote(lanes, mask, ~0u, [](unsigned r, unsigned v, int) { return std::min(r, v); });
}

}  // namespace emulator
