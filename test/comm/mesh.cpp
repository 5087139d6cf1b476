// Ranks of an axis, and refused meshes.
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/nccl_blocks.h"
#include "llmc/comm/transport/placement.h"
#include "test/ranks.h"
#include "test/test.h"

// The members of each axis are the ranks that differ in a single coordinate.
static void check_mesh_members(Config c, int dp, int pp, int tp) {
    const int ranks = dp * pp * tp;
    const MeshShape shape = mesh_shape(c.parallel, ranks);
    const int per_dp = stride_of(shape, kDp), per_pp = stride_of(shape, kPp), per_tp = stride_of(shape, kTp);
    run_threads(c, [=](Config, const Mesh& m) {
        EXPECT(m.rank == m.dp.index * per_dp + m.pp.index * per_pp + m.tp.index * per_tp);
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
        const int z = c.parallel.zero_group ? c.parallel.zero_group : dp;
        expect(m.tp, m.rank - m.tp.index * per_tp, per_tp, "tp");
        expect(m.pp, m.rank - m.pp.index * per_pp, per_pp, "pp");
        expect(m.world, 0, 1, "world");
        expect(m.shard, m.rank - m.dp.index % z * per_dp, per_dp, "shard");
        expect(m.replica, m.rank - m.dp.index / z * z * per_dp, z * per_dp, "replica");
        const bool ties = pp > 1 && (m.pp.index == 0 || m.pp.index == pp - 1);
        EXPECT(m.tied.size == (ties ? 2 : 1) && m.shard.size == z && m.replica.size == dp / z);
        if (ties) expect(m.tied, m.rank - m.pp.index * per_pp, (pp - 1) * per_pp, "tied");
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
    for (const char* order : {"pp,tp,dp", "dp,tp,pp", "tp,dp,pp"}) {
        c = config_of(12, 2, 3);
        c.parallel.order = order;
        check_mesh_members(c, 2, 3, 2);
    }
}

// All communicators of a middle stage, the rank with the most, leave half of the GPU. An axis alone has as
// many blocks as NCCL would take.
TEST(blocks_of_nccl_fit_at_once) {
    for (const int processors : {2, 28, 58, 72, 108, 132, 148})
        for (const MeshShape s : {MeshShape{2, 1, 1, 1, 2}, MeshShape{1, 1, 1, 8, 1},
                                  MeshShape{4, 4, 1, 8, 2}, MeshShape{1, 2, 1, 1, 1},
                                  MeshShape{8, 1, 1, 8, 8}, MeshShape{2, 4, 2, 8, 4},
                                  MeshShape{1, 8, 1, 1, 1}}) {
            const NcclBlocks b = nccl_blocks(s, processors);
            const int sizes[kGroups] = {s.pp, s.cp, s.tp, s.shard, s.dp * s.cp / s.shard, s.pp, 2};
            int all = s.pp == 1 ? 0 : s.pp == 2 ? 2 * b.of_route : 4 * b.of_route, count = s.pp == 1 ? 0 : 4;
            for (int i = 0; i < kGroups; i++) {
                EXPECT(std::has_single_bit(unsigned(b.of_axis[i])) && b.of_axis[i] <= 32,
                       "%d of %s: messages would have more", b.of_axis[i], group_rows[i].name);
                if (sizes[i] > 1) all += b.of_axis[i], count++;
            }
            EXPECT(all <= std::max(processors / 2, count), "%d blocks of %d processors, dp %d pp %d tp %d",
                   all, processors, s.dp, s.pp, s.tp);
            EXPECT(std::has_single_bit(unsigned(b.of_route)), "%d of a route", b.of_route);
        }
    const NcclBlocks stages = nccl_blocks({1, 8, 1, 1, 1}, 132);
    EXPECT(stages.of_route == 8, "%d of a route between eight stages", stages.of_route);
    const NcclBlocks h100 = nccl_blocks({8, 1, 1, 1, 8}, 132);
    EXPECT(h100.of_axis[3] == 32, "ZeRO alone has %d", h100.of_axis[3]);
}

// Rings of ZeRO and of all ranks have two neighbours, a route of a pipeline one. One rank has no buffers.
TEST(buffers_of_nccl_are_those_of_its_channels) {
    const auto mib = [](MeshShape s, const NcclBlocks& b) { return int(nccl_bytes(s, b) >> 20); };
    const MeshShape dp = {8, 1, 1, 1, 8}, pp = {1, 2, 1, 1, 1};
    EXPECT(mib({1, 1, 1, 1, 1}, nccl_blocks({1, 1, 1, 1, 1}, 132)) == 0);
    const NcclBlocks of_dp = nccl_blocks(dp, 132), of_pp = nccl_blocks(pp, 132);
    EXPECT(mib(dp, of_dp) == (32 + of_dp.of_axis[6]) * 2 * 12, "%d MiB", mib(dp, of_dp));
    EXPECT(mib(pp, of_pp) == (2 * (of_pp.of_axis[0] + of_pp.of_axis[5] + of_pp.of_axis[6]) +
                              2 * of_pp.of_route) * 12, "%d MiB", mib(pp, of_pp));
}

static Fatal error(Config c) {
    return test::fatal_of([&] { run_ranks(c, [](Config, const Mesh&) { return 0; }); });
}

static void has(Config c, std::initializer_list<const char*> words) {
    const Fatal e = error(c);
    EXPECT(e.code == kExitConfig, "%d: %s", e.code, e.what());
    for (const char* w : words) EXPECT(strstr(e.what(), w), "'%s' is not in: %s", w, e.what());
}

TEST(rows_that_ranks_cannot_share) {
    Config c = config_of(3);
    c.parallel.cp = 2;
    has(c, {"parallel.tp x parallel.pp x parallel.cp = 1 x 1 x 2", "3 ranks"});
    c.parallel.cp = 3;
    has(c, {"parallel.cp = 3", "model.context = 64 into two chunks a rank", "60 and 66"});
    c.model.context = 66, c.train.batch_tokens = 66;
    EXPECT(error(c).code == 0);
    c.model.heads = 6, c.model.channels = 48, c.model.kv_heads = 2, c.parallel.cp_kind = CpKind::Heads;
    has(c, {"parallel.cp_kind = heads", "parallel.cp = 3", "2 heads of keys", "gather"});
}

TEST(meshes_that_do_not_fit) {
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
    c = config_of(4, 2);
    c.parallel.order = "tp,pp";
    has(c, {"parallel.order = tp,pp", "dp of 2 ranks is left out", "as in tp,cp,pp,dp"});
    c = config_of(2);
    c.parallel.transport = "mpi";
    has(c, {"parallel.transport = mpi", "mpirun -np 2"});
    c = config_of(2);
    c.parallel.reduce_dtype = "bf16";
    c.run.precision = "fp64";
    has(c, {"parallel.reduce_dtype", "fp64"});
}

// A rank on a host, which sees GPUs first to last of the host and has these cores.
static Placement placed(const char* host, int first_gpu, int gpus, int first_core = 0, int cores = 1) {
    Placement s = {};
    strcpy(s.host, host);
    strcpy(s.boot, "a boot");
    s.gpus = gpus;
    for (int i = 0; i < gpus; i++)
        snprintf(s.address[i], sizeof s.address[i], "0000:%02X:00.0", first_gpu + i);
    for (int c = 0; c < cores; c++) CPU_SET(size_t(first_core + c), &s.cores);
    return s;
}

TEST(ranks_need_a_gpu_each) {
    Placements both(2, placed("a", 0x3a, 4));
    const auto refused = [&] { return test::fatal_of([&] { check_devices(both, hosts_of(both)); }); };
    const auto device = [&] { return hosts_of(both).device[1]; };
    EXPECT(refused().code == 0 && device() == 1);
    both = Placements(2, placed("a", 0x3a, 1));
    const Fatal same = refused();
    EXPECT(same.code == kExitConfig && strstr(same.what(), "ranks 0 and 1 are both on the GPU 0000:3A:00.0"),
           "%s", same.what());
    both[1] = placed("a", 0x3b, 1);                 // as Slurm shows each task a GPU of its own
    EXPECT(refused().code == 0 && device() == 0);
    both = {placed("a", 0x3a, 2), placed("a", 0x3c, 2)};        // --gpus-per-task=2
    EXPECT(refused().code == 0 && device() == 0);
    both = {placed("a", 0x3a, 2), placed("a", 0x3a, 3)};        // lists that overlap
    EXPECT(refused().code == kExitConfig);
    both = {placed("a", 0x3a, 1), placed("b", 0x3a, 1)};
    EXPECT(refused().code == 0);
    both = Placements(2, placed("a", 0x3a, 1));     // two machines made from one image
    strcpy(both[1].boot, "another boot");
    EXPECT(refused().code == 0 && hosts_of(both).hosts.size() == 2);
    both[1].gpus = 0;
    EXPECT(strstr(refused().what(), "rank 1 finds no GPU on a"));
    both = Placements(3, placed("a", 0x3a, 2));
    EXPECT(strstr(refused().what(), "3 ranks are more than the 2 GPUs of a"), "%s", refused().what());
}

TEST(four_thousand_ranks_are_placed_with_a_look_at_each) {
    Placements all;
    for (int r = 0; r < 4096; r++)
        all.push_back(placed(fmt::format("node{}", r / 8).c_str(), 0, 8, r % 8 * 4, 4));
    placements_compared = 0;
    const Hosts hosts = hosts_of(all);
    check_devices(all, hosts);
    EXPECT(placements_compared == 4096, "%ld", placements_compared);
    for (int r = 0; r < 4096; r++)
        EXPECT(hosts.device[size_t(r)] == r % 8 && threads_of_rank(all, hosts, r) == 4 &&
               hosts.host(r).ranks == 8, "rank %d", r);
    EXPECT(placement_warnings(config_of(4096, 8), all, hosts).empty() && placements_compared == 4096);
}

TEST(placements_that_cost_speed_are_warned_of) {
    const auto lines = [](const Placements& all, int tp = 1) {
        std::string text;
        for (const std::string& line : placement_warnings(config_of(int(all.size()), tp), all, hosts_of(all)))
            text += line + "\n";
        return text;
    };
    const auto expect = [](const std::string& text, const char* words) {
        EXPECT(*words ? strstr(text.c_str(), words) != nullptr : text.empty(), "'%s', expected '%s'",
               text.c_str(), words);
    };
    Placement a = placed("a", 0, 0), b = placed("a", 0, 0, 1);
    a.host_cores = b.host_cores = 8;
    expect(lines({a}), "a: mpirun binds its rank to 1 of 8 cores: add --bind-to none");
    expect(lines({a, b}), "a: mpirun binds its 2 ranks to 2 of 8 cores");
    a.host_cores = 2;
    expect(lines({a}), "1 of 2 cores");
    a.host_cores = b.host_cores = 3;
    expect(lines({a, b}), "");
    a.host_cores = 0;
    expect(lines({a}), "");
    const Placement elsewhere = placed("b", 0, 0);
    expect(lines({a, elsewhere}, 2), "parallel.tp = 2 spans hosts: rank 0 is on a, rank 1 on b");
    expect(lines({a, a, elsewhere, elsewhere}, 2), "");
    Config c = config_of(4, 2);
    c.parallel.order = "dp,tp";
    const Placements four = {a, a, elsewhere, elsewhere};
    expect(placement_warnings(c, four, hosts_of(four)).front(), "rank 0 is on a, rank 2 on b");
    expect(lines({placed("a", 0, 2), placed("a", 2, 2)}), "a: rank 0 sees 2 GPUs that no other rank sees");
    expect(lines({placed("a", 0, 8), placed("a", 0, 8)}), "");
    Placement docker = placed("a", 0, 8);
    docker.shared_memory = 64 << 20;
    expect(lines({docker}), "");
    expect(lines({docker, docker}), "a: /dev/shm has 67.1 MB, and NCCL may need");
    docker.shared_memory = 1 << 30;
    expect(lines({docker, docker}), "");
}

// A rank runs on the cores beside its GPU, by a made-up /sys; where these are none of the rank's, on its own.
TEST(ranks_are_bound_to_the_cores_beside_their_gpu) {
    cpu_set_t before, now;
    sched_getaffinity(0, sizeof before, &before);
    const std::string root = test::temporary_directory() + "/root";
    for (const auto& [gpu, cores] : {std::pair{"3a", "0-1,64-65"}, {"3b", "1"}, {"3c", "900-905"}}) {
        const std::string folder = root + "/sys/bus/pci/devices/0000:" + gpu + ":00.0";
        std::filesystem::create_directories(folder);
        std::ofstream(folder + "/local_cpulist") << cores << "\n";
    }
    Placements all(3, placed("a", 0x3a, 3, 0, 70));
    all.push_back(placed("b", 0x3a, 3, 0, 70));
    bind_to_gpu(all, hosts_of(all), 1, root);
    sched_getaffinity(0, sizeof now, &now);
    sched_setaffinity(0, sizeof before, &before);
    EXPECT(CPU_COUNT(&all[0].cores) == 4 && CPU_ISSET(64, &all[0].cores) && !CPU_ISSET(63, &all[0].cores));
    EXPECT(CPU_COUNT(&all[1].cores) == 1 && CPU_ISSET(1, &all[1].cores));
    EXPECT(CPU_COUNT(&all[2].cores) == 70 && CPU_COUNT(&all[3].cores) == 70);
    if (CPU_ISSET(1, &before)) EXPECT(CPU_EQUAL(&now, &all[1].cores), "%d cores", CPU_COUNT(&now));
    // a process alone on a machine with three GPUs has the first; without GPUs it keeps its cores
    Placements alone(1, placed("a", 0x3a, 3, 0, 70)), none(1, placed("a", 0, 0, 0, 70));
    bind_to_gpu(alone, hosts_of(alone), 0, root);
    sched_setaffinity(0, sizeof before, &before);
    bind_to_gpu(none, hosts_of(none), 0, root);
    sched_getaffinity(0, sizeof now, &now);
    EXPECT(CPU_COUNT(&alone[0].cores) == 4 && CPU_COUNT(&none[0].cores) == 70 && CPU_EQUAL(&now, &before));
    EXPECT(threads_of_rank(all, hosts_of(all), 0) == 4 && threads_of_rank(all, hosts_of(all), 1) == 1);
}
