#include "llmc/train/price/groups.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <string_view>

#include "llmc/base/check.h"

size_t index_of_axis(const char* name) {
    const std::string_view axis = name;
    const size_t i = size_t(std::find(axis_names, axis_names + kAxes, axis) - axis_names);
    CHECK(i < size_t(kAxes), "the axis {} of a mesh", axis);
    return i;
}

static int ranks_of(const MeshShape& m) { return m.dp * m.pp * m.cp * m.tp; }

// Member i of the group of an axis whose lowest rank is `first`: ranks ascend.
static int member_of(const MeshShape& m, std::string_view axis, int first, int i) {
    const int per_pp = m.tp * m.cp, per_dp = per_pp * m.pp;
    if (axis == "pp") return first + i * per_pp;
    if (axis == "tied") return first + i * (m.pp - 1) * per_pp;
    if (axis == "cp") return first + i * m.tp;
    if (axis != "shard" && axis != "replica") return first + i;
    const int dp = first / per_dp, cp = first / m.tp % m.cp;
    const int copy = dp * m.cp + cp + i * (axis == "replica" ? m.shard : 1);
    return first + (copy / m.cp - dp) * per_dp + (copy % m.cp - cp) * m.tp;
}

namespace {
struct Parts {
    int count, smallest;
};
}  // namespace

// The parts of a group of n between borders every `gpus` ranks; 0: no borders.
static Parts cut(const MeshShape& m, std::string_view axis, int first, int n, int gpus) {
    if (gpus == 0 || n == 1) return {.count = 1, .smallest = n};
    Parts parts = {.count = 0, .smallest = n};
    int last = -1, members = n;
    for (int i = 0; i < n; i++) {
        const int part = member_of(m, axis, first, i) / gpus;
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

static Members members_at(const MeshShape& mesh, size_t axis, const Place& place, const Machine& machine) {
    const char* name = axis_names[axis];
    const Parts nodes = cut(mesh, name, place.color, place.size, machine.gpus_per_node);
    const Parts pods = cut(mesh, name, place.color, place.size, machine.pod_gpus);
    return {.all = place.size, .inside = nodes.smallest, .nodes = nodes.count, .in_pod = pods.smallest};
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
    const size_t i = index_of_axis(axis);
    Members all;
    for (int rank = 0; rank < ranks_of(mesh); rank++) {
        const Place place = places_of(mesh, rank)[i];
        if (place.index == 0) all = slowest(all, members_at(mesh, i, place, machine));
    }
    return all;
}

bool in_one_node(const MeshShape& mesh, int copy, int stage, int other, const Machine& machine) {
    const int gpus = machine.gpus_per_node, of_stage = mesh.tp * mesh.cp;
    if (gpus == 0) return true;
    for (int i = 0; i < of_stage; i++) {
        const int rank = (copy * mesh.pp + stage) * of_stage + i;
        if (rank / gpus != (rank + (other - stage) * of_stage) / gpus) return false;
    }
    return true;
}

namespace {
// Groups by axis and lowest rank: those of dp have members in each copy.
struct KnownGroups {
    const MeshShape& mesh;
    const Machine& machine;
    std::map<std::pair<size_t, int>, Members> known = {};

    const Members& at(size_t axis, const Place& place) {
        const auto [it, fresh] = known.try_emplace({axis, place.color});
        if (fresh) it->second = members_at(mesh, axis, place, machine);
        return it->second;
    }
    Groups of_stage(int copy, int stage) {
        Groups groups;
        const int of_stage = mesh.tp * mesh.cp, first = (copy * mesh.pp + stage) * of_stage;
        for (int rank = first; rank < first + of_stage; rank++) {
            const std::array<Place, kAxes> places = places_of(mesh, rank);
            for (size_t axis = 0; axis < places.size(); axis++)
                groups[axis] = slowest(groups[axis], at(axis, places[axis]));
        }
        return groups;
    }
};
}  // namespace

// The copies after which borders every `gpus` ranks lie as before.
static int period(const MeshShape& mesh, int gpus) {
    return gpus / std::gcd(gpus, std::max(1, mesh.tp * mesh.cp * mesh.pp));
}

static int copies_to_look_at(const MeshShape& mesh, const Machine& machine) {
    const int64_t nodes = std::max(1, period(mesh, machine.gpus_per_node));
    const int64_t both = std::lcm(nodes, int64_t(std::max(1, period(mesh, machine.pod_gpus))));
    // groups of ZeRO that are not all of dp x cp are cut differently, too
    const bool whole = mesh.shard == mesh.dp * mesh.cp;
    const int64_t of_groups = whole ? 1 : std::lcm(mesh.shard, mesh.cp) / mesh.cp;
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
