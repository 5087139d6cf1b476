#include "llmc/comm/transport/nccl_blocks.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

inline namespace transport {

static constexpr int kMost = 32;            // more than any collective gains from

// Rank 0 has the most communicators: it is an end of its pipeline.
static bool is_used(const MeshShape& s, size_t group) { return place_of(s, group, 0).size > 1; }

static int routes_of(const MeshShape& s) {
    int routes = 0;                     // to and from each neighbour
    for (size_t g = 0; g < kGroups; g++)
        if (group_rows[g].messages) routes += 2 * std::min(place_of(s, g, 0).size - 1, 2);
    return routes;
}

namespace {
// Communicators of a weight: `count` of them on a rank, each with `blocks`.
struct Use {
    int weight, count, limit;
    int* blocks;
};
}  // namespace

// Doubles the communicator furthest below its share, as long as all fit on half of the SMs.
static void share_out(std::span<const Use> uses, int left) {
    for (const Use& u : uses) left -= u.count;
    for (;;) {
        const Use* next = nullptr;
        for (const Use& u : uses) {
            const bool fits = u.count * *u.blocks <= left && 2 * *u.blocks <= u.limit;
            if (fits && (!next || *u.blocks * next->weight < *next->blocks * u.weight)) next = &u;
        }
        if (!next) return;
        left -= next->count * *next->blocks;
        *next->blocks *= 2;
    }
}

NcclBlocks nccl_blocks(const MeshShape& s, int processors) {
    static constexpr int kRoute = 2;
    const int routes = routes_of(s);
    int all = routes * kRoute;
    for (size_t g = 0; g < kGroups; g++) all += is_used(s, g) ? group_rows[g].nccl_blocks : 0;
    NcclBlocks blocks;
    std::vector<Use> uses;
    const auto add = [&](int weight, int count, int& number) {
        number = 1;
        if (!count) return;
        const int share = std::clamp(processors / 2 * weight / all, 1, kMost);
        uses.push_back({weight, count, int(std::bit_ceil(unsigned(share))), &number});
    };
    for (size_t g = 0; g < kGroups; g++) add(group_rows[g].nccl_blocks, is_used(s, g), blocks.of_axis[g]);
    add(kRoute, routes, blocks.of_route);
    share_out(uses, processors / 2);
    return blocks;
}

size_t nccl_bytes(const MeshShape& s, const NcclBlocks& blocks) {
    static constexpr size_t kOfNeighbour = size_t(10 + 2) << 20;
    int neighbours = routes_of(s) * blocks.of_route;
    for (size_t g = 0; g < kGroups; g++) neighbours += is_used(s, g) ? 2 * blocks.of_axis[g] : 0;
    return size_t(neighbours) * kOfNeighbour;
}

}  // namespace transport
