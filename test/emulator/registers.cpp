// Arrays that a thread gives to wgmma: its sums and the fragments of a. On a GPU they are registers, here
// words of the thread's stack, whose accesses the checks see.
#include <algorithm>

#include "llmc/base/check.h"
#include "test/emulator/hopper.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"

namespace emulator {

static constexpr size_t kWord = 4;

static bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
    const auto at = reinterpret_cast<uintptr_t>(a), other = reinterpret_cast<uintptr_t>(b);
    return at < other + b_bytes && other < at + a_bytes;
}

// From and to the words of the thread's stack that hold the bytes; none for other memory.
static std::pair<size_t, size_t> words_of(const Thread& t, const void* p, size_t bytes) {
    const size_t from = size_t(static_cast<const std::byte*>(p) - t.stack->low);
    if (from >= kStackBytes) return {0, 0};
    return {from / kWord, std::min((from + bytes + kWord - 1) / kWord, kStackBytes / kWord)};
}

void touch_registers(const Thread& t, const void* p, size_t bytes, bool writes, Site site) {
    Issued& mine = t.block->hopper->issued[t.number];
    const char* verb = writes ? "writes" : "reads";
    for (const auto& s : mine.sums)
        if (overlap(p, bytes, s->d, size_t(s->count) * sizeof(float)))
            fail_at(&t, site, fmt::format("{} sums of the wgmma at {}, which no wgmma_wait has named since",
                                          verb, place_of(s->site)));
    for (const Issued::Fragment& f : mine.fragments)
        if (overlap(p, bytes, f.a, 16))
            fail_at(&t, site, fmt::format("{} registers of a of the wgmma at {} before the wait for it", verb,
                                          place_of(f.site)));
    const auto [from, to] = words_of(t, p, bytes);
    if (mine.touched.empty()) mine.touched.resize(kStackBytes / kWord);
    std::fill(mine.touched.begin() + long(from), mine.touched.begin() + long(to), true);
}

// wgmma after wgmma on the same sums needs no fence between.
void check_untouched(const Thread& t, const WgmmaCall& call, bool sums_are_held, Site site) {
    const std::vector<bool>& touched = t.block->hopper->issued[t.number].touched;
    const auto any = [&](const void* p, size_t bytes) {
        const auto [from, to] = words_of(t, p, bytes);
        for (size_t i = from; i < to && !touched.empty(); i++)
            if (touched[i]) return true;
        return false;
    };
    if (!sums_are_held && any(call.d, size_t(call.form.columns) * 2))
        fail(site, "wgmma, and no wgmma_fence since its sums were last read or written");
    if (call.fragment && any(call.fragment, 16))
        fail(site, "wgmma, and no wgmma_fence since the registers of a were last read or written");
}

void hold_fragment(const WgmmaCall& call, uint64_t product, Site site) {
    if (!checks_compiled_in) return;
    hopper().issued[current->number].fragments.push_back({call.fragment, product, site});
}

void release_fragments(Issued& mine) {
    std::erase_if(mine.fragments, [&](const Issued::Fragment& f) { return f.product < mine.awaited; });
}

}  // namespace emulator
