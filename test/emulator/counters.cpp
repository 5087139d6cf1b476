// Lanes run one after the other; a warp's joint access is assembled afterwards: the k-th accesses of the
// lanes at a place in the code belong together.
#include "test/emulator/counters.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "llmc/ops/cuda/device/runtime.h"
#include "test/emulator/access.h"
#include "test/emulator/l2.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

static std::mutex guard;
static std::map<const void*, KernelCount> all_counts;

KernelCount& count_of(const void* kernel) {
    const std::lock_guard lock(guard);
    return all_counts[kernel];
}

std::map<std::string, KernelCount> counts() {
    const std::lock_guard lock(guard);
    std::map<std::string, KernelCount> named;
    for (const auto& [kernel, count] : all_counts) named[kernel_name(kernel)] = count;
    return named;
}

// Floors come by launch(), on the thread that starts to count.
static void add_floor(void*, const void* kernel, const Floor& floor) {
    if (!kernel) return;                // a library's kernel: no counts
    KernelCount& count = count_of(kernel);
    count.floor_bytes += floor.bytes;
    count.floor_flops += floor.mma_flops;
    count.at_most |= floor.at_most;
    count.scattered |= floor.scattered;
}
void reset_counts() {
    static const LaunchObserver observer = {nullptr, add_floor, [](void*, const void*) {}};
    launch_observer = &observer;
    const std::lock_guard lock(guard);
    all_counts.clear();
}

std::vector<std::string> off_floor(const KernelCount& c) {
    const double bytes = double(c.bytes), sectors = 32 * double(c.sectors), most = 1.1 * c.floor_bytes;
    constexpr double few = 16 * 32;
    std::vector<std::string> off;
    if (!(bytes <= most && (!checks_compiled_in || c.at_most || bytes >= c.floor_bytes)))
        off.push_back(fmt::format("{:.0f} bytes where {:.0f} are the floor", bytes, c.floor_bytes));
    if (!(c.scattered || sectors <= most + few))
        off.push_back(fmt::format("sectors of {:.0f} bytes in all where {:.0f} are the floor", sectors,
                                  c.floor_bytes));
    const double flops = double(c.mma_flops);
    if (!(c.at_most ? flops <= c.floor_flops : flops == c.floor_flops))
        off.push_back(fmt::format("{:.0f} flops where {:.0f} are the floor", double(c.mma_flops),
                                  c.floor_flops));
    if (!(double(c.shared_waves) <= 1.4 * double(c.shared_ideal)))
        off.push_back(fmt::format("{} passes of shared memory where {} are ideal", size_t(c.shared_waves),
                                  size_t(c.shared_ideal)));
    return off;
}

void tell_of_counts() {
    if (settings.floors_file.empty()) return;
    FILE* file = fopen(settings.floors_file.c_str(), "a");
    if (!file) return;
    for (const auto& [name, count] : counts()) fprintf(file, "%s\n", name.c_str());
    fclose(file);
}

static void log(uintptr_t at, size_t bytes, bool cached, bool shared, Site site) {
    machine->log.accesses.push_back({site, at, uint16_t(current->number), uint8_t(bytes), shared, cached});
}

static void note(const void* p, size_t bytes, bool writes, bool cached, Site site) {
    if (!current) return;
    const auto at = reinterpret_cast<uintptr_t>(p);
    if (at % bytes) [[unlikely]] fail(site, "misaligned: an access of %zu bytes at %p", bytes, p);
    if (settings.l2_blocks) [[unlikely]] note_for_l2(p, bytes, writes);
    if (!settings.count) [[likely]] return;
    current->noted_from = at;
    current->noted_to = at + bytes;
    current->noted_write = writes;
    log(at, bytes, cached, shared_space_of_machine().holds(p), site);
}

void note_read(const void* p, size_t bytes, bool cached) {
    note(p, bytes, false, cached, __builtin_return_address(0));
}
void note_write(const void* p, size_t bytes) { note(p, bytes, true, false, __builtin_return_address(0)); }

void note_copy(const void* from, size_t bytes, Site site) {
    if (settings.l2_blocks) note_for_l2(from, bytes, false);
    for (size_t at = 0; settings.count && at < bytes; at += 128)
        log(reinterpret_cast<uintptr_t>(from) + at, std::min<size_t>(bytes - at, 128), false, false, site);
}

// Skips bytes that a helper has just reported: the compiler may have split the helper's access.
void note_plain(const void* p, size_t bytes, bool writes, Site site) {
    const Thread& t = *current;
    const auto at = reinterpret_cast<uintptr_t>(p);
    if (at >= t.noted_from && at + bytes <= t.noted_to && writes == t.noted_write) return;
    const bool shared = shared_space_of_machine().holds(p);
    if (shared || device_space().holds(p)) log(at, bytes, false, shared, site);
}

// Bytes as one range per access, sorted and merged.
static uint64_t distinct_bytes(std::vector<std::pair<uintptr_t, uintptr_t>>& ranges, uint64_t granule) {
    for (auto& [from, to] : ranges) {
        from = from / granule * granule;
        to = (to + granule - 1) / granule * granule;
    }
    std::sort(ranges.begin(), ranges.end());
    uint64_t sum = 0;
    uintptr_t end = 0;
    for (const auto& [from, to] : ranges) {
        if (to <= end) continue;
        sum += to - std::max(from, end);
        end = to;
    }
    return sum;
}

// Passes over the 32 banks of 4 bytes. Wider accesses are served 8 or 16 lanes at a time; a word that several
// lanes want counts once.
static void count_shared(const Logged* accesses, size_t count, KernelCount& k) {
    const size_t at_once = accesses[0].bytes == 16 ? 8 : accesses[0].bytes == 8 ? 16 : 32;
    for (size_t part = 0; part < 32; part += at_once) {
        std::array<std::vector<uintptr_t>, 32> words;
        bool any = false;
        for (size_t i = 0; i < count; i++) {
            const Logged& a = accesses[i];
            if (a.thread % 32 / at_once != part / at_once) continue;
            any = true;
            for (uintptr_t word = a.address / 4; word <= (a.address + a.bytes - 1) / 4; word++) {
                auto& bank = words[word % 32];
                if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
            }
        }
        if (!any) continue;
        size_t most = 0;
        for (const auto& bank : words) most = std::max(most, bank.size());
        k.shared_waves += most;
        k.shared_ideal++;
    }
}

static void count_global(const Logged* accesses, size_t count, KernelCount& k, AccessLog& log) {
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    for (size_t i = 0; i < count; i++) {
        const Logged& a = accesses[i];
        if (a.cached) for (size_t b = 0; b < a.bytes; b += 2) log.cached.push_back(a.address + b);
        else ranges.push_back({a.address, a.address + a.bytes});
    }
    k.bytes += distinct_bytes(ranges, 1);
    k.sectors += distinct_bytes(ranges, 32) / 32;
}

void count_block(AccessLog& log, KernelCount& k) {
    auto& all = log.accesses;
    // k-th of its thread at its place: the thread's accesses are in order already
    std::stable_sort(all.begin(), all.end(), [](const Logged& a, const Logged& b) {
        return std::pair(a.site, a.thread) < std::pair(b.site, b.thread);
    });
    std::vector<std::pair<uint32_t, Logged>> numbered;
    uint32_t number = 0;
    for (size_t i = 0; i < all.size(); i++) {
        number = i && all[i].site == all[i - 1].site && all[i].thread == all[i - 1].thread ? number + 1 : 0;
        numbered.push_back({number, all[i]});
    }
    const auto key = [](const std::pair<uint32_t, Logged>& a) {
        return std::tuple(a.second.site, a.second.thread / 32, a.first, a.second.shared);
    };
    std::stable_sort(numbered.begin(), numbered.end(), [&](auto& a, auto& b) { return key(a) < key(b); });
    std::vector<Logged> together;
    for (size_t i = 0; i < numbered.size(); ) {
        together.clear();
        const size_t first = i;
        while (i < numbered.size() && key(numbered[i]) == key(numbered[first]))
            together.push_back(numbered[i++].second);
        if (together[0].shared) count_shared(together.data(), together.size(), k);
        else count_global(together.data(), together.size(), k, log);
    }
    all.clear();
}

void count_launch(AccessLog& log, KernelCount& k) {
    std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
    std::sort(log.cached.begin(), log.cached.end());
    log.cached.erase(std::unique(log.cached.begin(), log.cached.end()), log.cached.end());
    for (uintptr_t p : log.cached) ranges.push_back({p, p + 2});
    k.bytes += distinct_bytes(ranges, 1);
    k.sectors += distinct_bytes(ranges, 32) / 32;
    log.cached.clear();
}

}  // namespace emulator
