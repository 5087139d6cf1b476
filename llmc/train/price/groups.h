// Which ranks share a node: what the places of ranks in the mesh say about their links.
//
// Ranks fill nodes one after the other. A copy of the pipeline is an index of dp. A border between nodes may
// cut a group of an axis in one copy and none in the next.
#pragma once
#include <array>
#include <compare>
#include <vector>

#include "llmc/comm/mesh.h"
#include "llmc/train/price/cluster.h"

inline namespace price {

// Numbers of a group. all: its members. inside: the fewest members in one node. nodes: with members. in_pod:
// the fewest members in one pod.
struct Members {
    int all = 1, inside = 1, nodes = 1, in_pod = 1;
    auto operator<=>(const Members&) const = default;
};
using Groups = std::array<Members, kGroups>;  // of a rank, in the order of group_rows

// Of the slowest group of an axis: the fewest in a node or pod, and the most nodes, of any group.
Members members_of(const MeshShape& mesh, const char* axis, const Machine& machine);

// Which neighbours share the node of a stage. The first stage and the last are neighbours.
struct Near {
    bool previous = false, next = false;
    auto operator<=>(const Near&) const = default;
};
// Whether all ranks of a stage share nodes with those of another, in this copy of the pipeline.
bool in_one_node(const MeshShape& mesh, int copy, int stage, int other, const Machine& machine);

// A stage in a copy of the pipeline. Its ranks wait for one another in each block, so the slowest group of
// any of them is the group of all.
struct StagePlace {
    Groups groups;
    Near near;
    auto operator<=>(const StagePlace&) const = default;
};
// The copies of the pipeline whose places differ: of each copy, its stages.
std::vector<std::vector<StagePlace>> distinct_copies(const MeshShape& mesh, const Machine& machine);

}  // namespace price
