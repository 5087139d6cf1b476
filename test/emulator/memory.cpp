#include "test/emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "llmc/base/check.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/streams.h"

namespace emulator {

static constexpr size_t kDeviceBytes = size_t(16) << 30, kAlignment = 256;

bool checks_compiled_in = false;

static std::mutex guard;
struct Allocation { size_t bytes; int device; };
static std::map<std::byte*, Allocation> allocations;
static std::multimap<size_t, std::byte*> unused;       // by whole size: red zones and rounding included
static std::map<std::byte*, size_t> red_zones;
static std::map<std::byte*, size_t> pinned;
static size_t end_of_used = 0;

static void* reserve(size_t bytes) {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(p != MAP_FAILED, "the emulation cannot reserve {} bytes of addresses", bytes);
    return p;
}

// Aligned to huge pages: host_guard.cpp changes the rights of every page twice for each operation.
static Space make_space(size_t bytes) {
    Space s;
    const uintptr_t at = reinterpret_cast<uintptr_t>(reserve(bytes + kHugePage));
    s.start = reinterpret_cast<std::byte*>((at + kHugePage - 1) / kHugePage * kHugePage);
    s.bytes = bytes;
    if (checks_compiled_in) {
        s.states = static_cast<State*>(reserve(bytes / kGranule));
        s.cells = static_cast<Cell*>(reserve(bytes / kGranule * sizeof(Cell)));
    }
    return s;
}

Space& device_space() {
    static Space space = [] {
        const Space s = make_space(kDeviceBytes);
        madvise(s.start, s.bytes, MADV_HUGEPAGE);
        return s;
    }();
    return space;
}

Space& shared_space_of_machine() {
    thread_local Space space = make_space(kSharedBytes);
    return space;
}

static void set_states(const Space& s, const void* p, size_t bytes, State state) {
    if (!s.states || bytes == 0) return;
    const size_t first = s.granule(p);
    memset(s.states + first, int(state), (bytes + kGranule - 1) / kGranule);
}

static size_t whole_size(size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment + 2 * kRedZone;
}

static void red_zone(std::byte* p, size_t bytes) {
    memset(p, 0xff, bytes);
    red_zones[p] = bytes;
}

size_t device_bytes_in_use() { return (end_of_used + 4095) / 4096 * 4096; }

size_t bytes_allocated() {
    const std::lock_guard lock(guard);
    size_t sum = 0;
    for (const auto& [p, a] : allocations) sum += a.device == current_device() ? a.bytes : 0;
    return sum;
}

// New pages are accessible; pages in use are not, unless `open` lives.
void* allocate(size_t bytes) {
    const DeviceOpen open;
    const std::lock_guard lock(guard);
    Space& s = device_space();
    const size_t size = whole_size(bytes);
    std::byte* start = nullptr;
    if (const auto found = unused.find(size); found != unused.end()) {
        start = found->second;
        unused.erase(found);
    } else {
        if (end_of_used + size > s.bytes) return nullptr;
        start = s.start + end_of_used;
        end_of_used += size;
    }
    std::byte* p = start + kRedZone;
    memset(p, 0xff, bytes);                            // NaN: device memory comes with any content
    red_zone(start, kRedZone);
    red_zone(p + bytes, size - kRedZone - bytes);
    set_states(s, p, bytes, State::Written);
    allocations[p] = {bytes, current_device()};
    return p;
}

bool release(void* p) {
    if (!p) return true;
    const std::lock_guard lock(guard);
    const auto found = allocations.find(static_cast<std::byte*>(p));
    if (found == allocations.end()) return false;
    const size_t size = whole_size(found->second.bytes);
    std::byte* start = found->first - kRedZone;
    red_zones.erase(red_zones.lower_bound(start), red_zones.lower_bound(start + size));
    set_states(device_space(), start, size, State::Outside);
    unused.insert({size, start});
    allocations.erase(found);
    return true;
}

bool is_device_memory(const void* p, size_t bytes) {
    const std::lock_guard lock(guard);
    std::byte* at = static_cast<std::byte*>(const_cast<void*>(p));
    auto found = allocations.upper_bound(at);
    if (found == allocations.begin()) return false;
    --found;
    return at + bytes <= found->first + found->second.bytes;
}

void add_red_zone(void* p, size_t bytes) {
    if (!is_device_memory(p, bytes)) return;            // an arena of the host's
    const DeviceOpen open;
    const std::lock_guard lock(guard);
    red_zone(static_cast<std::byte*>(p), bytes);
    set_states(device_space(), p, bytes, State::Outside);
}

void check_red_zones(const void* kernel) {
    const std::lock_guard lock(guard);
    static const std::vector<std::byte> whole(2 * kRedZone, std::byte(0xff));
    for (const auto& [start, bytes] : red_zones) {
        if (bytes <= whole.size() && memcmp(start, whole.data(), bytes) == 0) continue;
        for (size_t i = 0; i < bytes; i++) {
            if (start[i] == std::byte(0xff)) continue;
            const auto next = allocations.upper_bound(start + i);
            std::string text = fmt::format("out of bounds: written {} bytes into a red zone", i);
            if (next != allocations.begin()) {
                const auto& [p, before] = *std::prev(next);
                if (p + before.bytes <= start + i)
                    text += fmt::format(" behind an allocation of {} bytes", before.bytes);
            }
            machine->report = fmt::format("{}\n    in {}", text, kernel_name(kernel));
            memset(start, 0xff, bytes);
            return;
        }
    }
}

void pin(void* p, size_t bytes) {
    const std::lock_guard lock(guard);
    pinned[static_cast<std::byte*>(p)] = bytes;
}
void unpin(void* p) {
    const std::lock_guard lock(guard);
    pinned.erase(static_cast<std::byte*>(p));
}
size_t page_table_bytes() {
    const std::lock_guard lock(guard);
    size_t bytes = 0;
    for (const auto& [start, size] : pinned) bytes += size / 512;
    return (bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20);
}
bool crosses_pinned_pieces(const void* p, size_t bytes) {
    const std::lock_guard lock(guard);
    std::byte* const at = static_cast<std::byte*>(const_cast<void*>(p));
    auto found = pinned.upper_bound(at);
    if (found != pinned.end() && found->first < at + bytes) return true;        // another begins within
    if (found == pinned.begin() || bytes == 0) return false;
    const std::byte* const end = std::prev(found)->first + std::prev(found)->second;
    return at < end && at + bytes > end;
}
bool is_pinned(const void* p) {
    const std::lock_guard lock(guard);
    std::byte* at = static_cast<std::byte*>(const_cast<void*>(p));
    auto found = pinned.upper_bound(at);
    return found != pinned.begin() && at < std::prev(found)->first + std::prev(found)->second;
}

std::byte* shared_space() { return shared_space_of_machine().start; }
void shared_starts(std::byte* p, size_t bytes) {
    set_states(shared_space_of_machine(), p, bytes, State::Outside);
}
void shared_appears(std::byte* p, size_t bytes) {
    set_states(shared_space_of_machine(), p, bytes, State::Unwritten);
}

}  // namespace emulator
