#include "llmc/comm/mesh.h"

#include <algorithm>

#include "llmc/base/check.h"

inline namespace comm {

static_assert(kMeshAxes <= GridSlice().digits.size());

GridSlice grid_slice(std::span<const GridAxis> grid, int rank) {
    GridSlice s = {.lowest = rank};
    int stride = 1;
    for (const GridAxis& axis : grid) {
        if (axis.varies && axis.size > 1) {
            const int index = rank / stride % axis.size;
            s.index += index * s.size;
            s.lowest -= index * stride;
            s.size *= axis.size;
            s.digits[s.axes++] = {axis.size, stride};
        }
        stride *= axis.size;
    }
    return s;
}

GridSlice grid_slice(const MeshShape& s, unsigned axes, int rank) {
    std::array<GridAxis, kMeshAxes> grid;
    std::transform(s.order.begin(), s.order.end(), grid.begin(), [&](MeshAxis a) {
        return GridAxis{s.*axis_rows[a].size, (axes & axis_bit(a)) != 0};
    });
    return grid_slice(grid, rank);
}

size_t index_of_group(std::string_view name) {
    const GroupRow* const row = std::ranges::find(group_rows, name, &GroupRow::name);
    CHECK(row != std::end(group_rows), "the group {} of a mesh", name);
    return size_t(row - group_rows);
}

// `size` members of a slice, from `first` in steps. REQUIRES: the slice's rank is one of them.
static GridSlice every(GridSlice s, int first, int step, int size) {
    s.index = (s.index - first) / step;
    s.first = first;
    s.step = step;
    s.size = size;
    return s;
}

GridSlice group_slice(const MeshShape& s, size_t group, int rank) {
    const GridSlice all = grid_slice(s, group_rows[group].over, rank);
    const int n = all.size, i = all.index;
    switch (group_rows[group].part) {
        case SlicePart::Shard: return every(all, i - i % s.shard, 1, s.shard);
        case SlicePart::Replica: return every(all, i % s.shard, s.shard, n / s.shard);
        case SlicePart::Ends:
            if (i > 0 && i < n - 1) return every(all, i, 1, 1);
            return every(all, 0, std::max(1, n - 1), std::min(n, 2));
        case SlicePart::All: break;
    }
    return all;
}

Place place_of(const MeshShape& s, size_t group, int rank) {
    const GridSlice members = group_slice(s, group, rank);
    return {members.index, members.size, members.rank(0)};
}

RankMesh::RankMesh(const ParallelConfig& p, int ranks, int rank, bool over_nccl) {
    const MeshShape shape = mesh_shape(p, ranks);
    ring = p.virtual_stages > 1;
    mesh.rank = rank;
    mesh.dp = {index_on(shape, kDp, rank), shape.dp};
    for (size_t i = 0; i < kGroups; i++) {
        const Place& at = places[i] = place_of(shape, i, rank);
        Group& g = groups[i];
        g.name = group_rows[i].name;
        g.index = at.index;
        g.size = at.size;
        mesh.*group_rows[i].axis = {.index = at.index, .size = at.size, .group = at.size > 1 ? &g : nullptr};
    }
    // gradients are reduced over these two axes
    for (Axis* a : {&mesh.shard, &mesh.replica}) {
        if (!a->group) continue;
        a->group->native = p.reduce == ReduceOrder::Native || (p.reduce == ReduceOrder::Auto && over_nccl);
        a->group->bf16_wire = p.reduce_dtype == ReduceDtype::Bf16;
    }
}

}  // namespace comm
