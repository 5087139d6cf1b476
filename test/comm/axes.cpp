// The axes of the mesh and the groups derived from them, against definitions by counting ranks.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "llmc/comm/mesh.h"
#include "test/ranks.h"
#include "test/test.h"

using Indices = std::vector<std::vector<int>>;          // of each rank on each axis

// The indices on axes of these sizes, the innermost first: an odometer.
static Indices counted(const std::vector<int>& sizes) {
    Indices all;
    std::vector<int> now(sizes.size(), 0);
    const int ranks = std::accumulate(sizes.begin(), sizes.end(), 1, std::multiplies<>());
    for (int r = 0; r < ranks; r++) {
        all.push_back(now);
        for (size_t a = 0; a < sizes.size() && ++now[a] == sizes[a]; a++) now[a] = 0;
    }
    return all;
}

// The ranks whose indices differ from those of `rank` on varying axes alone.
static std::vector<int> alike(const Indices& ranks, const std::vector<bool>& varies, int rank) {
    std::vector<int> found;
    for (size_t r = 0; r < ranks.size(); r++) {
        bool same = true;
        for (size_t a = 0; a < varies.size(); a++) same &= varies[a] || ranks[r][a] == ranks[size_t(rank)][a];
        if (same) found.push_back(int(r));
    }
    return found;
}

static void expect_members(const GridSlice& slice, const std::vector<int>& members, int rank,
                           const char* name) {
    EXPECT(slice.size == int(members.size()), "%s: %d members, not %zu", name, slice.size, members.size());
    for (int i = 0; i < std::min(slice.size, int(members.size())); i++)
        EXPECT(slice.rank(i) == members[size_t(i)], "%s: member %d is rank %d, not %d", name, i,
               slice.rank(i), members[size_t(i)]);
    EXPECT(slice.rank(slice.index) == rank, "%s: rank %d", name, rank);
}

// Grids of up to six axes. An axis more, of one rank, changes no slice, wherever it lies.
TEST(slices_of_random_grids) {
    std::mt19937 random(1);
    for (int turn = 0; turn < 200; turn++) {
        std::vector<int> sizes(1 + random() % 6);
        std::vector<bool> varies;
        std::vector<GridAxis> grid;
        for (int& size : sizes) {
            size = 1 + int(random() % 3);
            varies.push_back(random() % 2);
            grid.push_back({size, varies.back()});
        }
        const auto ranks = counted(sizes);
        for (int rank = 0; rank < int(ranks.size()); rank++) {
            const std::vector<int> members = alike(ranks, varies, rank);
            expect_members(grid_slice(grid, rank), members, rank, "a grid");
            std::vector<GridAxis> more = grid;
            const bool varies_too = random() % 2;
            more.insert(more.begin() + ptrdiff_t(random() % (grid.size() + 1)), GridAxis{1, varies_too});
            expect_members(grid_slice(more, rank), members, rank, "a further axis of one rank");
        }
    }
}

static MeshShape random_shape(std::mt19937& random) {
    MeshShape s;
    for (const AxisRow& a : axis_rows) s.*a.size = 1 + int(random() % 4);
    std::ranges::shuffle(s.order, random);
    do s.shard = 1 + int(random() % size_t(ranks_of(s, kGradientAxes)));
    while (ranks_of(s, kGradientAxes) % s.shard);
    return s;
}

// Members of each group by its definition, in words: the tied ends, and consecutive ranks that sum gradients.
static std::vector<int> defined(const std::string& group, const MeshShape& s, int rank,
                                const Indices& ranks) {
    const auto among = [&](const std::vector<std::string>& names) {
        std::vector<bool> varies;
        for (const MeshAxis a : s.order) varies.push_back(std::ranges::count(names, axis_rows[a].name) > 0);
        return alike(ranks, varies, rank);
    };
    if (group == "world") return among({"dp", "pp", "cp", "tp"});
    if (group == "tied") {
        const std::vector<int> stages = among({"pp"});
        const bool ends = rank == stages.front() || rank == stages.back();
        return ends && s.pp > 1 ? std::vector<int>{stages.front(), stages.back()} : std::vector<int>{rank};
    }
    if (group != "shard" && group != "replica") return among({group});
    const std::vector<int> copies = among({"dp", "cp"});
    const long own = std::ranges::find(copies, rank) - copies.begin();
    std::vector<int> found;
    for (long i = 0; i < long(copies.size()); i++)
        if (group == "shard" ? i / s.shard == own / s.shard : i % s.shard == own % s.shard)
            found.push_back(copies[size_t(i)]);
    return found;
}

TEST(groups_of_random_meshes_and_orders) {
    std::mt19937 random(2);
    for (int turn = 0; turn < 200; turn++) {
        const MeshShape s = random_shape(random);
        std::vector<int> sizes;
        for (const MeshAxis a : s.order) sizes.push_back(s.*axis_rows[a].size);
        const auto ranks = counted(sizes);
        EXPECT(ranks_of(s) == int(ranks.size()), "%d ranks", ranks_of(s));
        for (int rank = 0; rank < int(ranks.size()); rank++) {
            for (size_t i = 0; i < s.order.size(); i++)
                EXPECT(index_on(s, s.order[i], rank) == ranks[size_t(rank)][i], "rank %d on %s", rank,
                       axis_rows[s.order[i]].name);
            for (size_t g = 0; g < kGroups; g++) {
                const std::vector<int> members = defined(group_rows[g].name, s, rank, ranks);
                expect_members(group_slice(s, g, rank), members, rank, group_rows[g].name);
                const Place at = place_of(s, g, rank);
                EXPECT(at.color == members.front() && at.size == int(members.size()) &&
                       members[size_t(at.index)] == rank, "rank %d in %s", rank, group_rows[g].name);
            }
        }
    }
}

// rank = ((dp pp.size + pp) cp.size + cp) tp.size + tp where no order is set.
TEST(tensor_parallel_ranks_are_neighbours_by_default) {
    const MeshShape s = {.dp = 3, .pp = 2, .cp = 2, .tp = 4};
    const ParallelConfig p = {.tp = 4, .pp = 2};
    const MeshShape set = mesh_shape(p, 24);
    EXPECT(set.dp == 3 && set.pp == 2 && set.cp == 1 && set.tp == 4 && set.shard == 3, "dp %d", set.dp);
    for (int rank = 0; rank < 48; rank++) {
        const auto on = [rank](const MeshShape& mesh, MeshAxis a) { return index_on(mesh, a, rank); };
        EXPECT(rank == ((on(s, kDp) * 2 + on(s, kPp)) * 2 + on(s, kCp)) * 4 + on(s, kTp), "rank %d", rank);
        if (rank < 24)
            EXPECT(rank == (on(set, kDp) * 2 + on(set, kPp)) * 4 + on(set, kTp), "rank %d of settings", rank);
    }
    EXPECT(mesh_shape({.tp = 2, .cp = 2}, 8).shard == 4, "shards are over all of dp x cp");
}

TEST(an_order_names_each_axis_of_several_ranks_once) {
    const auto mistake = [](const char* order, int tp, int dp) {
        ParallelConfig p = {.tp = tp};
        p.order = order;
        return order_mistake(p, dp);
    };
    for (const char* order : {"tp,pp,dp", "dp,pp,tp", "pp,tp,dp", "tp,dp", "dp,cp,tp,pp"})
        EXPECT(mistake(order, 2, 2).empty(), "%s: %s", order, mistake(order, 2, 2).c_str());
    EXPECT(mistake("dp", 1, 8).empty() && mistake("tp", 8, 1).empty(), "others have one rank");
    const std::tuple<const char*, int, const char*> wrong[] = {
        {"tp,pp,ep,dp", 1, "'ep' is no axis"}, {"tp,pp,tp,dp", 1, "tp stands there twice"},
        {"pp,dp", 2, "tp of 2 ranks is left out"}, {"tp,pp", 1, "dp of 4 ranks is left out"},
        {"", 1, "'' is no axis"}, {"tp, dp", 1, "' dp' is no axis"}};
    for (const auto& [order, tp, words] : wrong) {
        const std::string text = mistake(order, tp, 4);
        EXPECT(text.find(std::string("parallel.order = ") + order) == 0 && text.find(words) != text.npos &&
               text.find("as in tp,cp,pp,dp") != text.npos, "%s: '%s'", order, text.c_str());
    }
}

// What an axis must not lack: a name that no other row has, and each size once.
TEST(rows_of_axes_and_groups_are_distinct) {
    std::map<std::string, int> names;
    for (const AxisRow& a : axis_rows) names[a.name]++;
    for (const GroupRow& g : group_rows)
        EXPECT(index_of_group(g.name) == size_t(&g - group_rows), "%s", g.name);
    EXPECT(names.size() == kMeshAxes, "%zu names", names.size());
    MeshShape s;
    int size = 1;
    for (const AxisRow& a : axis_rows) s.*a.size = ++size;
    EXPECT(s.dp * s.tp * s.pp * s.cp == 2 * 3 * 4 * 5 && s.shard == 1, "a row has the size of another");
}
