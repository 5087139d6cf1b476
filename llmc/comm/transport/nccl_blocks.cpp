#include "llmc/comm/transport/nccl_blocks.h"

#include <algorithm>
#include <array>

static constexpr int kMost = 32;            // more than any collective gains from

static std::array<bool, kAxes> used_axes(const MeshShape& s) {
    const bool stages = s.pp > 1;
    return {stages, s.cp > 1, s.tp > 1, s.shard > 1, s.dp * s.cp / s.shard > 1, stages, true};
}

static int routes_of(const MeshShape& s) { return 2 * std::min(s.pp - 1, 2); }     // to and from each

NcclBlocks nccl_blocks(const MeshShape& s, int processors) {
    // what is waited for most: tensor parallelism, then the shards of a block
    static constexpr int kWeights[kAxes] = {1, 4, 8, 8, 4, 2, 1}, kRoute = 2;
    const std::array<bool, kAxes> used = used_axes(s);
    int all = routes_of(s) * kRoute;
    for (int i = 0; i < kAxes; i++) all += used[size_t(i)] ? kWeights[i] : 0;
    const auto share = [&](int weight) { return std::clamp(processors / 2 * weight / all, 1, kMost); };
    NcclBlocks blocks;
    for (int i = 0; i < kAxes; i++) blocks.of_axis[i] = share(kWeights[i]);
    blocks.of_route = share(kRoute);
    return blocks;
}

size_t nccl_bytes(const MeshShape& s, const NcclBlocks& blocks) {
    static constexpr size_t kOfNeighbour = size_t(10 + 2) << 20;
    if (s.dp * s.pp * s.cp * s.tp == 1) return 0;
    const std::array<bool, kAxes> used = used_axes(s);
    int neighbours = routes_of(s) * blocks.of_route;
    for (int i = 0; i < kAxes; i++) neighbours += used[size_t(i)] ? 2 * blocks.of_axis[i] : 0;
    return size_t(neighbours) * kOfNeighbour;
}
