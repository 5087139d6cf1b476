// Which members of a group share a node, and which copies of a pipeline differ, against counting all ranks.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "test/train/price/slow_machine.h"

// 3 stages on nodes of 8: the border of the first and second node cuts the third copy, that of the second and
// third the sixth. Copies repeat after 8.
TEST(copies_of_a_pipeline_differ_where_borders_cut_them) {
    Machine machine = slow_machine().machine;
    machine.gpus_per_node = 8;
    const auto distinct = [&](const MeshShape& mesh) { return distinct_copies(mesh, machine).size(); };
    EXPECT(distinct({.dp = 16, .pp = 3, .shard = 16}) == 3, "whole; cut after two stages; after one");
    EXPECT(distinct({.dp = 4096, .pp = 4, .shard = 4096}) == 1, "whole nodes");
    EXPECT(distinct({.dp = 2, .tp = 6, .shard = 2}) == 2, "tp 6");
    EXPECT(distinct({.dp = 12, .shard = 6}) == 4, "groups of ZeRO and their replicas: whole or cut, each");
    // cp is part of the groups of ZeRO: a node has all 8 of its ranks in one
    EXPECT(members_of({.dp = 8, .cp = 2, .shard = 16}, "shard", machine) ==
           Members({.all = 16, .inside = 8, .nodes = 2, .in_pod = 16}), "cp 2");
}

// dp with a stride of 3 ranks on nodes of 8: ranks 6 and 9, of a group of two, lie in different nodes.
TEST(a_group_of_distant_ranks_may_cross_a_border) {
    Prices p = slow_machine();
    p.mesh = {.dp = 8, .tp = 3, .shard = 2};
    EXPECT(members_of(p.mesh, "shard", p.machine).inside == 1, "a border is not seen");
    p.mesh.shard = 8;
    EXPECT(members_of(p.mesh, "shard", p.machine).inside == 2, "2 to 3 of 8 ranks are in a node");
    p.mesh = {.dp = 2, .pp = 4};
    EXPECT(members_of(p.mesh, "tied", p.machine).inside == 2, "both ends of a pipeline of 4");
}

// The numbers of the group that has the fewest members in a node, by counting.
static Members counted(const MeshShape& mesh, size_t group, int rank, const Machine& machine) {
    const Place own = place_of(mesh, group, rank);
    std::map<int, int> nodes, pods;
    for (int r = 0; r < ranks_of(mesh); r++) {
        const Place at = place_of(mesh, group, r);
        if (at.size != own.size || at.color != own.color) continue;
        nodes[r / machine.gpus_per_node]++;
        pods[r / machine.pod_gpus]++;
    }
    const auto fewest = [](const std::map<int, int>& parts) {
        return std::ranges::min_element(parts, {}, [](const auto& p) { return p.second; })->second;
    };
    return {.all = own.size, .inside = fewest(nodes), .nodes = int(nodes.size()), .in_pod = fewest(pods)};
}

// Random meshes and orders: the copies that are looked at have every stage of every copy.
TEST(distinct_copies_are_those_of_all_copies) {
    std::mt19937 random(3);
    for (int turn = 0; turn < 150; turn++) {
        Machine machine = slow_machine().machine;
        machine.gpus_per_node = 2 + int(random() % 4);
        machine.pod_gpus = 2 * machine.gpus_per_node;
        MeshShape m = {.dp = 1 + int(random() % 8), .pp = 1 + int(random() % 3), .cp = 1 + int(random() % 2),
                       .tp = 1 + int(random() % 3)};
        std::ranges::shuffle(m.order, random);
        const int all = ranks_of(m, kGradientAxes);
        do m.shard = 1 + int(random() % size_t(all));
        while (all % m.shard);
        std::set<std::vector<StagePlace>> expected;
        for (int copy = 0; copy < m.dp; copy++) {
            std::vector<StagePlace> stages(size_t(m.pp));
            for (int r = 0; r < ranks_of(m); r++) {
                if (index_on(m, kDp, r) != copy) continue;
                StagePlace& at = stages[size_t(index_on(m, kPp, r))];
                for (size_t g = 0; g < kGroups; g++) {
                    const Members own = counted(m, g, r, machine);
                    Members& slowest = at.groups[g];
                    if (own.all > slowest.all) slowest = own;
                    if (own.all < slowest.all) continue;
                    slowest = {own.all, std::min(slowest.inside, own.inside),
                               std::max(slowest.nodes, own.nodes), std::min(slowest.in_pod, own.in_pod)};
                }
            }
            for (int s = 0; s < m.pp; s++) {
                stages[size_t(s)].near.previous = in_one_node(m, copy, s, (s + m.pp - 1) % m.pp, machine);
                stages[size_t(s)].near.next = in_one_node(m, copy, s, (s + 1) % m.pp, machine);
            }
            expected.insert(stages);
        }
        const auto found = distinct_copies(m, machine);
        EXPECT(std::vector(expected.begin(), expected.end()) == found,
               "dp %d pp %d cp %d tp %d, shard %d, nodes of %d: %zu copies, not %zu", m.dp, m.pp, m.cp, m.tp,
               m.shard, machine.gpus_per_node, found.size(), expected.size());
    }
}
