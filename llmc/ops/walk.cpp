#include "llmc/ops/walk.h"

#include <algorithm>
#include <bit>

#include "llmc/base/check.h"
#include "llmc/base/progress.h"
#include "llmc/ops/timeline.h"

inline namespace any_backend {

std::array<int, 8> Cost::sizes() const {
    const ProductShape& p = product;
    const AttentionShape& a = attention;
    switch (kind) {
    case Kind::Product: return {p.m, p.n, p.k, p.bias, p.batch};
    case Kind::Attention: return {a.B, a.Tq, a.Tk, a.NH, a.D, a.apart, a.window, a.documents};
    case Kind::Wait: return {ticket.number, int(ticket.lane)};
    default: return {};
    }
}

static uint64_t hash_of(const Cost& c) {
    uint64_t h = uint64_t(reinterpret_cast<uintptr_t>(c.name));
    const auto mix = [&h](uint64_t v) {
        h = (h ^ v) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    };
    for (const int size : c.sizes()) mix(uint64_t(size));
    mix(c.read);
    mix(c.written);
    mix(c.needs.scratch);
    mix(uint64_t(c.peer));
    mix(uint64_t(reinterpret_cast<uintptr_t>(c.axis)));
    return h;
}

static Timeline::Kind kind_of(const Cost& c) {
    switch (c.kind) {
    case Kind::Collective: return Timeline::Kind::Collective;
    case Kind::Wait: return Timeline::Kind::Wait;
    case Kind::Copy: return Timeline::Kind::Copy;
    default: return Timeline::Kind::Op;
    }
}

// A collective, and a wait for one, stays open: its call closes the event.
void Walk::time(const Cost& cost) const {
    const Timeline::Event event = {.name = cost.name, .axis = cost.axis, .kind = kind_of(cost),
                                   .entry = int32_t(entries.size()), .block = block, .micro = micro};
    if (cost.axis) timeline->open(event);
    else timeline->op(event);
}

void Walk::record(const Cost& cost) {
    if (timeline) time(cost);
    else if (computes) begun.push_back(seconds_now());
    const uint64_t h = hash_of(cost);
    const auto [first, end] = known.equal_range(h);
    for (auto it = first; it != end; ++it)
        if (costs[size_t(it->second)] == cost) {
            entries.push_back({it->second, block, micro, action});
            return;
        }
    known.emplace(h, int32_t(costs.size()));
    entries.push_back({int32_t(costs.size()), block, micro, action});
    costs.push_back(cost);
}

void use_scratch(const char* op, size_t bytes) {
    CHECK(bytes <= context.scratch_bytes, "{}: {} bytes of scratch needed, {} are lent", op, bytes,
          context.scratch_bytes);
    Walk* const walk = context.walk;
    if (!walk || walk->entries.empty()) return;
    const Cost& stated = walk->of(walk->entries.back());
    CHECK(bytes <= stated.needs.scratch, "{} states {} bytes of scratch and uses {}", stated.name,
          stated.needs.scratch, bytes);
    walk->scratch_used = std::max(walk->scratch_used, bytes);
}

Needs Walk::needs() const {
    Needs most;
    for (const Cost& c : costs) {
        most.scratch = std::max(most.scratch, c.needs.scratch);
        most.library = std::max(most.library, c.needs.library);
    }
    return most;
}

double Walk::flops() const {
    double sum = 0;
    for (const Entry& e : entries) sum += of(e).flops;
    return sum;
}

}  // namespace any_backend
