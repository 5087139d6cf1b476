#include "llmc/train/price/groups.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "llmc/base/check.h"

inline namespace price {

namespace {
struct Parts {
    int count, smallest;
};
}  // namespace

// The parts of a group between borders every `gpus` ranks; 0: no borders.
static Parts cut(const GridSlice& group, int gpus) {
    const int n = group.size;
    if (gpus == 0 || n == 1) return {.count = 1, .smallest = n};
    Parts parts = {.count = 0, .smallest = n};
    int last = -1, members = n;
    for (int i = 0; i < n; i++) {
        const int part = group.rank(i) / gpus;      // members ascend
        if (part != last) {
            parts.smallest = std::min(parts.smallest, members);
            parts.count++;
            members = 0;
            last = part;
        }
        members++;
    }
    parts.smallest = std::min(parts.smallest, members);
    return parts;
}

static Members members_at(const GridSlice& group, const Machine& machine) {
    const Parts nodes = cut(group, machine.gpus_per_node), pods = cut(group, machine.pod_gpus);
    return {.all = group.size, .inside = nodes.smallest, .nodes = nodes.count, .in_pod = pods.smallest};
}

// A group of one rank, as on an axis of the ends alone, is never the slowest.
static Members slowest(const Members& a, const Members& b) {
    if (a.all != b.all) return a.all > b.all ? a : b;
    return {.all = a.all,
            .inside = std::min(a.inside, b.inside),
            .nodes = std::max(a.nodes, b.nodes),
            .in_pod = std::min(a.in_pod, b.in_pod)};
}

Members members_of(const MeshShape& mesh, const char* axis, const Machine& machine) {
    const size_t i = index_of_group(axis);
    Members all;
    for (int rank = 0; rank < ranks_of(mesh); rank++) {
        const GridSlice group = group_slice(mesh, i, rank);
        if (group.index == 0) all = slowest(all, members_at(group, machine));
    }
    return all;
}

static GridSlice ranks_of_stage(const MeshShape& mesh, int copy, int stage) {
    const int first = copy * stride_of(mesh, kDp) + stage * stride_of(mesh, kPp);
    return grid_slice(mesh, kAllAxes & ~axis_bit(kDp) & ~axis_bit(kPp), first);
}

bool in_one_node(const MeshShape& mesh, int copy, int stage, int other, const Machine& machine) {
    const int gpus = machine.gpus_per_node, away = (other - stage) * stride_of(mesh, kPp);
    if (gpus == 0) return true;
    const GridSlice ranks = ranks_of_stage(mesh, copy, stage);
    for (int i = 0; i < ranks.size; i++)
        if (ranks.rank(i) / gpus != (ranks.rank(i) + away) / gpus) return false;
    return true;
}

namespace {
// Groups by row and lowest rank: those of dp have members in each copy.
struct KnownGroups {
    const MeshShape& mesh;
    const Machine& machine;
    std::map<std::pair<size_t, int>, Members> known = {};

    const Members& at(size_t group, int rank) {
        const GridSlice members = group_slice(mesh, group, rank);
        const auto [it, fresh] = known.try_emplace({group, members.rank(0)});
        if (fresh) it->second = members_at(members, machine);
        return it->second;
    }
    Groups of_stage(int copy, int stage) {
        Groups groups;
        const GridSlice ranks = ranks_of_stage(mesh, copy, stage);
        for (int i = 0; i < ranks.size; i++)
            for (size_t group = 0; group < kGroups; group++)
                groups[group] = slowest(groups[group], at(group, ranks.rank(i)));
        return groups;
    }
};
}  // namespace

// The copies after which borders every `gpus` ranks lie as before.
static int period(const MeshShape& mesh, int gpus) {
    return gpus / std::gcd(gpus, stride_of(mesh, kDp));
}

static int copies_to_look_at(const MeshShape& mesh, const Machine& machine) {
    const int64_t nodes = std::max(1, period(mesh, machine.gpus_per_node));
    const int64_t both = std::lcm(nodes, int64_t(std::max(1, period(mesh, machine.pod_gpus))));
    // groups of ZeRO that have not all ranks are cut differently, too; in copies at a distance of shard alike
    int64_t of_groups = 1;
    if (mesh.shard < ranks_of(mesh, kGradientAxes)) of_groups = mesh.dp % mesh.shard ? mesh.dp : mesh.shard;
    return int(std::min(int64_t(mesh.dp), std::lcm(both, of_groups)));
}

std::vector<std::vector<StagePlace>> distinct_copies(const MeshShape& mesh, const Machine& machine) {
    KnownGroups groups{mesh, machine};
    std::set<std::vector<StagePlace>> distinct;
    for (int copy = 0; copy < copies_to_look_at(mesh, machine); copy++) {
        std::vector<StagePlace> stages;
        for (int s = 0; s < mesh.pp; s++) {
            const auto near = [&](int other) { return in_one_node(mesh, copy, s, other, machine); };
            stages.push_back({.groups = groups.of_stage(copy, s),
                              .near = {.previous = near((s + mesh.pp - 1) % mesh.pp),
                                       .next = near((s + 1) % mesh.pp)}});
        }
        distinct.insert(stages);
    }
    return {distinct.begin(), distinct.end()};
}

}  // namespace price
