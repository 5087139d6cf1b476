#include "llmc/ops/arena.h"

#include <algorithm>
#include <cstdint>

inline namespace any_backend {

static constexpr size_t kAlign = 64, kPage = 4096;

void Arena::reserve(const std::string& name, size_t bytes, std::function<void(std::byte*)> place,
                    Purpose purpose) {
    CHECK(!memory, "arena: '{}' is added after the allocation", name);
    const size_t aligned = (bytes + red_zone + kAlign - 1) / kAlign * kAlign;
    regions.push_back({name, used, bytes, std::move(place)});
    used += aligned;
    total = (used + kPage - 1) / kPage * kPage;
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&](const Row& r) { return r.name == name && r.purpose == purpose; });
    if (row == rows.end()) rows.push_back({name, purpose, aligned});
    else row->bytes += aligned;
}

std::vector<Arena::Row> Arena::plan() const {
    auto result = rows;
    if (total > used) result.push_back({"rounding to pages", Purpose::Other, total - used});
    return result;
}

// In the hole between the two halves of x86-64's addresses.
void Arena::describe() {
    static constexpr uintptr_t kNowhere = uintptr_t(1) << 60;
    for (const Region& p : regions) p.place(reinterpret_cast<std::byte*>(kNowhere + p.offset));
}

void Arena::allocate(Allocate allocate, Free free) {
    CHECK(!memory, "arena: allocated twice");
    memory = allocate(total);
    release = free;
    std::byte* start = static_cast<std::byte*>(memory);
    for (const Region& p : regions) p.place(start + p.offset);
    for (size_t i = 0; red_zone && i < regions.size(); i++) {
        const size_t end = regions[i].offset + regions[i].bytes;
        red_zone_made(start + end, (i + 1 < regions.size() ? regions[i + 1].offset : total) - end);
    }
}

Arena::~Arena() {
    if (memory) release(memory, total);
}

}  // namespace any_backend
