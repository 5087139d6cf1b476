#include "llmc/comm/transport/nccl_blocks.h"

#include <algorithm>

static constexpr int kMost = 32;            // more than any collective gains from

NcclBlocks nccl_blocks(const MeshShape& s, int processors) {
    const bool stages = s.pp > 1;
    const int neighbours = std::min(s.pp - 1, 2), routes = 2 * neighbours;      // to and from each
    // what is waited for most: tensor parallelism, then the shards of a block
    const struct { bool used; int weight; } axes[kAxes] = {
        {stages, 1}, {s.cp > 1, 4}, {s.tp > 1, 8}, {s.shard > 1, 8}, {s.dp * s.cp / s.shard > 1, 4},
        {stages, 2}, {true, 1}};
    static constexpr int kRoute = 2;
    int all = routes * kRoute;
    for (const auto& axis : axes) all += axis.used ? axis.weight : 0;
    const auto share = [&](int weight) { return std::clamp(processors / 2 * weight / all, 1, kMost); };
    NcclBlocks blocks;
    for (int i = 0; i < kAxes; i++) blocks.of_axis[i] = share(axes[i].weight);
    blocks.of_route = share(kRoute);
    return blocks;
}
