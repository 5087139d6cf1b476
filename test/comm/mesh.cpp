// Ranks of an axis, and refused meshes.
#include <cstring>

#include "llmc/comm/transport/launch.h"
#include "llmc/comm/transport/nccl_blocks.h"
#include "test/ranks.h"
#include "test/test.h"

// The members of each axis are the ranks that differ in a single coordinate.
static void check_mesh_members(Config c, int dp, int pp, int tp) {
    const int ranks = dp * pp * tp;
    run_threads(c, [=](Config, const Mesh& m) {
        EXPECT(m.rank == (m.dp.index * pp + m.pp.index) * tp + m.tp.index);
        EXPECT(m.dp.size == dp && m.pp.size == pp && m.tp.size == tp && m.cp.size == 1 &&
               m.world.size == ranks);
        const auto members = [&](const Axis& a) {
            std::vector<int> all(size_t(a.size), m.rank);
            a.all_gather(all.data(), &m.rank, 1);
            return all;
        };
        const auto expect = [&](const Axis& a, int first, int stride, const char* name) {
            const std::vector<int> got = members(a);
            for (int i = 0; i < a.size; i++)
                EXPECT(got[size_t(i)] == first + i * stride, "%s of rank %d: place %d is rank %d", name,
                       m.rank, i, got[size_t(i)]);
            EXPECT(got[size_t(a.index)] == m.rank, "%s", name);
        };
        const int per_dp = pp * tp, z = c.parallel.zero_group ? c.parallel.zero_group : dp;
        expect(m.tp, m.rank - m.tp.index, 1, "tp");
        expect(m.pp, m.rank - m.pp.index * tp, tp, "pp");
        expect(m.world, 0, 1, "world");
        expect(m.shard, m.rank - m.dp.index % z * per_dp, per_dp, "shard");
        expect(m.replica, m.rank - m.dp.index / z * z * per_dp, z * per_dp, "replica");
        const bool ties = pp > 1 && (m.pp.index == 0 || m.pp.index == pp - 1);
        EXPECT(m.tied.size == (ties ? 2 : 1) && m.shard.size == z && m.replica.size == dp / z);
        if (ties) expect(m.tied, m.rank - m.pp.index * tp, (pp - 1) * tp, "tied");
        return 0;
    });
}

TEST(members_of_axes) {
    check_mesh_members(config_of(1), 1, 1, 1);
    check_mesh_members(config_of(8, 2, 2), 2, 2, 2);
    check_mesh_members(config_of(12, 2, 3), 2, 3, 2);
    Config c = config_of(12, 1, 2);
    c.parallel.zero_group = 3;
    check_mesh_members(c, 6, 2, 1);
    c.parallel.zero_group = 2;
    check_mesh_members(c, 6, 2, 1);
}

// Gradients are partial over dp x cp: together shard and replica have every rank of the same pp and tp once,
// and consecutive ranks of dp x cp share a copy. Also with cp, which no run has yet.
TEST(gradients_are_summed_over_context_parallel_ranks) {
    for (const MeshShape s : {MeshShape{2, 1, 2, 1, 4}, MeshShape{2, 2, 2, 2, 2}, MeshShape{3, 1, 2, 2, 3},
                              MeshShape{1, 2, 4, 1, 2}, MeshShape{3, 2, 1, 2, 1}}) {
        for (int rank = 0; rank < s.dp * s.pp * s.cp * s.tp; rank++) {
            const int tp = rank % s.tp, cp = rank / s.tp % s.cp, pp = rank / s.tp / s.cp % s.pp,
                      dp = rank / s.tp / s.cp / s.pp, copy = dp * s.cp + cp,
                      own = copy % s.shard, group = copy / s.shard;
            const auto of_copy = [&](int i) {
                return ((i / s.cp * s.pp + pp) * s.cp + i % s.cp) * s.tp + tp;
            };
            const auto at = places_of(s, rank);
            const Place shard = at[3], replica = at[4];
            EXPECT(data_parallel_of(s, rank).index == dp && at[0].index == pp && at[1].index == cp &&
                   at[2].index == tp, "rank %d lies elsewhere", rank);
            EXPECT(shard.size == s.shard && replica.size == s.dp * s.cp / s.shard, "%d shards, %d copies",
                   shard.size, replica.size);
            EXPECT(shard.index == own && replica.index == group, "rank %d", rank);
            EXPECT(shard.color == of_copy(copy - own), "rank %d: shard of rank %d", rank,
                   shard.color);
            EXPECT(replica.color == of_copy(own), "rank %d: copy of rank %d", rank, replica.color);
        }
    }
    EXPECT(mesh_shape({.tp = 2, .cp = 2}, 8).shard == 4, "shards are over all of dp x cp");
}

// All communicators of a middle stage, the rank with the most, leave half of the GPU. An axis alone has as
// many blocks as NCCL would take.
TEST(blocks_of_nccl_fit_at_once) {
    for (const int processors : {2, 28, 58, 72, 108, 132, 148})
        for (const MeshShape s : {MeshShape{2, 1, 1, 1, 2}, MeshShape{1, 1, 1, 8, 1},
                                  MeshShape{4, 4, 1, 8, 2}, MeshShape{1, 2, 1, 1, 1},
                                  MeshShape{8, 1, 1, 8, 8}, MeshShape{2, 4, 2, 8, 4}}) {
            const NcclBlocks b = nccl_blocks(s, processors);
            const int sizes[kAxes] = {s.pp, s.cp, s.tp, s.shard, s.dp * s.cp / s.shard, s.pp, 2};
            int all = s.pp == 1 ? 0 : s.pp == 2 ? 2 * b.of_route : 4 * b.of_route, count = s.pp == 1 ? 0 : 4;
            for (int i = 0; i < kAxes; i++) {
                EXPECT(b.of_axis[i] >= 1 && b.of_axis[i] <= 32, "%d of %s", b.of_axis[i], axis_names[i]);
                if (sizes[i] > 1) all += b.of_axis[i], count++;
            }
            EXPECT(all <= std::max(processors / 2, count), "%d blocks of %d processors, dp %d pp %d tp %d",
                   all, processors, s.dp, s.pp, s.tp);
        }
    const NcclBlocks h100 = nccl_blocks({8, 1, 1, 1, 8}, 132);
    EXPECT(h100.of_axis[3] == 32, "ZeRO alone has %d", h100.of_axis[3]);
}

TEST(meshes_that_do_not_fit) {
    const auto error = [](Config c) {
        return test::fatal_of([&] { run_ranks(c, [](Config, const Mesh&) { return 0; }); });
    };
    const auto has = [&](Config c, std::initializer_list<const char*> words) {
        const Fatal e = error(c);
        EXPECT(e.code == kExitConfig, "%d: %s", e.code, e.what());
        for (const char* w : words) EXPECT(strstr(e.what(), w), "'%s' is not in: %s", w, e.what());
    };
    EXPECT(error(config_of(4, 2, 2)).code == 0);
    has(config_of(3, 2), {"parallel.tp x parallel.pp = 2 x 1", "3 ranks"});
    has(config_of(2, 1, 8), {"parallel.pp", "8", "2 ranks"});
    has(config_of(1, 2), {"= 2 does not divide the 1 rank of"});
    Config c = config_of(2, 2);
    c.model.heads = 3;
    has(c, {"parallel.tp = 2", "model.heads = 3"});
    c.model.heads = 6, c.model.kv_heads = 3;
    has(c, {"parallel.tp = 2", "model.kv_heads = 3", "the largest that does is 1"});
    c.model.heads = 4, c.model.kv_heads = 0, c.model.ffn_channels = 25;
    has(c, {"parallel.tp = 2", "model.ffn_channels = 25", "24 and 26"});
    c = config_of(3, 3);
    c.model.heads = 3, c.model.head_channels = 8, c.model.channels = 32, c.model.ffn_channels = 0;
    has(c, {"parallel.tp = 3", "model.ffn_channels = 128 (4 x model.channels)", "126 and 129"});
    c = config_of(4, 1, 4);
    c.model.layers = 3;
    has(c, {"4 stages", "model.layers = 3"});
    c = config_of(2, 1, 2);
    c.parallel.virtual_stages = 2;
    has(c, {"parallel.virtual_stages = 2", "interleaved"});
    c.parallel.schedule = "interleaved";
    EXPECT(error(c).code == 0);
    c.train.batch_tokens = 3 * 64;
    has(c, {"model.context", "parallel.pp = 2", "128 and 256"});
    EXPECT(!batch_divides(c, 1, 1) && batch_divides(c, 1, 0));
    c.parallel.virtual_stages = 1;
    has(c, {"parallel.schedule = interleaved", "parallel.virtual_stages", "at least 2", "1f1b"});
    c = config_of(4);
    c.parallel.zero_group = 3;
    has(c, {"parallel.zero_group = 3", "4 data-parallel ranks"});
    c = config_of(3);
    c.train.batch_tokens = 1024;
    has(c, {"1024", "3 data-parallel ranks", "192", "960 and 1152"});
    c = config_of(2);
    c.parallel.cp = 2;
    has(c, {"parallel.cp = 2"});
    c = config_of(2);
    c.parallel.transport = "mpi";
    has(c, {"parallel.transport = mpi", "mpirun -np 2"});
    c = config_of(2);
    c.parallel.reduce_dtype = "bf16";
    c.run.precision = "fp64";
    has(c, {"parallel.reduce_dtype", "fp64"});
}
