// The order of accesses by vector clocks, for blocks that use Hopper's instructions: an mbarrier orders some
// of a block's threads and not others, and loads and products run beside the threads. Kept where accesses
// are checked; other blocks have their epochs (access.cpp).
//
// A clock has a count for each thread and each agent: a warp group's products, an mbarrier's loads. An access
// carries its thread's own count. A thread that comes to a barrier passes its clock on, and counts up; who
// leaves the barrier has seen what came to it. An access is ordered behind another where the clock of its
// thread has reached the other's count.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "test/emulator/access.h"
#include "test/emulator/memory.h"

namespace emulator {

// Access::thread of agents: warp groups, then mbarriers.
inline constexpr unsigned kFirstAgent = 1024;
inline constexpr unsigned kMostAgents = 64;

using Clock = std::vector<uint32_t>;

struct Clocks {
    std::vector<Clock> threads;                        // empty where nothing is checked
    std::vector<std::vector<uint32_t>> fences;         // of each thread: its counts at fence_proxy_async
    std::unordered_map<size_t, std::vector<Access>> readers;       // of shared granules, beyond Cell::read
    // accesses up to this time have epochs, which were these
    uint32_t began = 0;
    uint16_t epoch = 0;
    std::vector<uint16_t> warp_epochs;
};
void begin_clocks(Clocks& c, const Block& block);
void join(Clock& into, const Clock& other);
void pass_on(Clocks& c, unsigned thread, Clock& to);   // and counts up
void take_over(Clocks& c, unsigned thread, const Clock& from);
void fence_stores(Clocks& c, unsigned thread);         // for what runs beside the threads
// Of the current block, at barriers that threads of any launch have.
void meet_in_block(Block& block);
void meet_in_warp(Block& block, unsigned warp, uint32_t mask);

// A load or a product on behalf of a thread. It begins behind what `seen` has reached; its accesses are over
// for those whose clock has `count` for the agent.
struct Agent {
    unsigned number;
    uint32_t count;
    const Thread* thread;
    const Clock* seen;
    Site site;
};
void check_agent(Clocks& c, const Agent& a, const void* p, size_t bytes, bool writes);
std::string agent_name(const Access& a);

// Between here and access.cpp.
uint32_t next_time();
Access access_by(unsigned agent, uint32_t count, Site site);
void check_by_clocks(const Thread& t, Space& s, size_t first, size_t last, Access now, Kind kind, Site site);
void check_state(const Thread* thread, Space& s, size_t granule, bool shared, Kind kind, Site site);
[[noreturn]] void race(const Thread* thread, const char* memory, const Access& before, bool before_writes,
                       const Access& now, bool writes);
std::string thread_name(const Access& a);
Site site_of(const Access& a);
bool across_blocks(const Access& before, const Access& now, bool shared);

}  // namespace emulator
