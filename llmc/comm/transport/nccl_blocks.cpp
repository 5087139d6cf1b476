#include "llmc/comm/transport/nccl_blocks.h"

#include <algorithm>

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

NcclBlocks nccl_blocks(const MeshShape& s, int processors) {
    static constexpr int kRoute = 2;
    int all = routes_of(s) * kRoute;
    for (size_t g = 0; g < kGroups; g++) all += is_used(s, g) ? group_rows[g].nccl_blocks : 0;
    all = std::max(all, 1);
    const auto share = [&](int weight) { return std::clamp(processors / 2 * weight / all, 1, kMost); };
    NcclBlocks blocks;
    for (size_t g = 0; g < kGroups; g++) blocks.of_axis[g] = share(group_rows[g].nccl_blocks);
    blocks.of_route = share(kRoute);
    return blocks;
}

size_t nccl_bytes(const MeshShape& s, const NcclBlocks& blocks) {
    static constexpr size_t kOfNeighbour = size_t(10 + 2) << 20;
    int neighbours = routes_of(s) * blocks.of_route;
    for (size_t g = 0; g < kGroups; g++) neighbours += is_used(s, g) ? 2 * blocks.of_axis[g] : 0;
    return size_t(neighbours) * kOfNeighbour;
}

}  // namespace transport
