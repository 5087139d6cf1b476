#include "test/emulator/l2.h"

#include <deque>
#include <list>
#include <unordered_map>
#include <vector>

#include "llmc/base/check.h"
#include "test/emulator/counters.h"
#include "test/emulator/memory.h"
#include "test/emulator/settings.h"
#include "test/emulator/thread.h"

namespace emulator {

static constexpr uintptr_t kLine = 128;

size_t l2_bytes() {
    if (settings.l2_bytes) return settings.l2_bytes;
    switch (settings.arch) {
        case 80: return 40 << 20;
        case 89: return 72 << 20;
        case 90: return 50 << 20;
        case 100: case 103: return 126 << 20;
        case 120: return 96 << 20;
        default: return 6 << 20;
    }
}

namespace {
struct Touch { uintptr_t line; bool writes; };
using Turn = std::vector<Touch>;
using Trace = std::vector<Turn>;            // of a block

struct Cache {
    struct Line { uintptr_t line; bool dirty; };
    const size_t most;
    std::list<Line> lines;                  // the most recently used first
    std::unordered_map<uintptr_t, std::list<Line>::iterator> found;
    uint64_t memory_bytes = 0;

    explicit Cache(size_t bytes) : most(bytes / kLine) {}
    void touch(const Touch& a) {
        const auto at = found.find(a.line);
        if (at != found.end()) {
            at->second->dirty |= a.writes;
            lines.splice(lines.begin(), lines, at->second);
            return;
        }
        if (!a.writes) memory_bytes += kLine;           // stores of whole lines read nothing
        lines.push_front({a.line, a.writes});
        found[a.line] = lines.begin();
        if (lines.size() > most) drop_last();
    }
    void drop_last() {
        if (lines.back().dirty) memory_bytes += kLine;
        found.erase(lines.back().line);
        lines.pop_back();
    }
};
}  // namespace

static thread_local Trace block;            // the running block's
static thread_local std::vector<Trace> blocks;

void note_for_l2(const void* p, size_t bytes, bool writes) {
    if (!device_space().holds(p)) return;
    block.resize(std::max<size_t>(block.size(), current->block->epoch + 1));
    Turn& turn = block.back();
    const auto at = reinterpret_cast<uintptr_t>(p);
    for (uintptr_t line = at / kLine; line <= (at + bytes - 1) / kLine; line++)
        turn.push_back({line, writes});
}

void end_turn_on_l2() { block.push_back({}); }

void replay_block_on_l2() { blocks.push_back(std::move(block)), block.clear(); }

void replay_launch_on_l2(const void* kernel) {
    Cache cache(l2_bytes());
    struct Running { const Trace* trace; size_t turn; };
    std::deque<Running> running;
    size_t started = 0;
    while (started < blocks.size() || !running.empty()) {
        while (started < blocks.size() && running.size() < size_t(settings.l2_blocks))
            running.push_back({&blocks[started++], 0});
        Running next = running.front();
        running.pop_front();
        if (next.turn == next.trace->size()) continue;
        for (const Touch& t : (*next.trace)[next.turn]) cache.touch(t);
        next.turn++;
        running.push_back(next);
    }
    while (!cache.lines.empty()) cache.drop_last();
    count_of(kernel).memory_bytes += cache.memory_bytes;
    blocks.clear();
}

}  // namespace emulator
