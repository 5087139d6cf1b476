// Connections of messages over NCCL: made before the first step, for what steps send alone. What ranks tell
// each other before: hosts that share a GPU, GPUs in use, generations.
#include <nccl.h>

#include <atomic>
#include <cstring>

#include "llmc/base/guard/generation.h"
#include "llmc/comm/launch/gpu_rank.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/nccl.h"
#include "llmc/comm/transport/nccl_rank.h"
#include "llmc/comm/transport/placement.h"
#include "test/emulator/messages.h"
#include "test/emulator/settings.h"
#include "test/nccl_ranks.h"

// Pairs of ranks, in order, that this rank has exchanged a message with.
static size_t connected(const NcclLine& l) {
    size_t pairs = 0;
    for (const auto& [between, calls] : l.comm->calls) pairs += between.first >= 0 && calls > 0;
    return pairs;
}

static NcclMember& member(const Axis& a) { return nccl_member(*a.group); }

TEST(messages_connect_before_the_first_step) {
    run_threads(over("nccl", 3, "auto", true), [](Config, const Mesh& mesh) {
        EXPECT(member(mesh.pp).routes.size() == 4, "of a ring");
        for (const NcclRoute& w : member(mesh.pp).routes)
            EXPECT(connected(w.line) == 1, "from %d to %d on rank %d", w.from, w.to, mesh.rank);
        EXPECT(connected(member(mesh.world)) == 0, "steps send nothing over the world");
        return 0;
    });
    const auto of_shard = [](const char* reduce, OptimizerKind kind) {
        Config cfg = over("nccl", 3, reduce);
        cfg.optimizer.kind = kind;
        size_t pairs = 0;
        run_threads(cfg, [&](Config, const Mesh& mesh) {
            if (mesh.rank == 0) pairs = connected(member(mesh.shard));
            return 0;
        });
        return pairs;
    };
    EXPECT(of_shard("auto", OptimizerKind::Adamw) == 0, "NCCL's own sums send no messages");
    EXPECT(of_shard("ordered", OptimizerKind::Adamw) == 4 && of_shard("auto", OptimizerKind::Muon) == 4);
    Config tp = config_of(2, 2);
    tp.parallel.transport = "nccl";
    run_threads(tp, [](Config, const Mesh& mesh) {
        EXPECT(connected(member(mesh.tp)) == 2, "sums over tp are in the order of the ranks");
        return 0;
    });
}

// The emulation refuses a first message while another thread's collective waits, and none after a first.
TEST(a_first_message_beside_a_collective_is_told) {
    std::atomic<bool> waits = false, asked = false;
    for (const bool early : {false, true}) {
        const Fatal e = test::fatal_of([&] {
            run_threads(over("nccl", 2), [&](Config, const Mesh& mesh) {
                emulator::Device<float> x(64);
                const NcclLine& l = member(mesh.world);
                if (early) {
                    NCCL_CHECK(l.comm, mesh.rank ? ncclRecv(x.p, 1, ncclInt8, 0, l.comm, l.stream)
                                                 : ncclSend(x.p, 1, ncclInt8, 1, l.comm, l.stream));
                    host_waits_for(l.stream);
                    comm::idle_barrier();
                }
                if (mesh.rank == 1) {
                    Pending p = mesh.shard.start_all_gather(x.p, x.p, 32);
                    waits = true;
                    while (!asked) std::this_thread::yield();
                    mesh.shard.wait(p);
                    NCCL_CHECK(l.comm, ncclRecv(x.p, 32, ncclInt8, 0, l.comm, l.stream));
                } else {
                    while (!waits) std::this_thread::yield();
                    const ncclResult_t sent = ncclSend(x.p, 32, ncclInt8, 1, l.comm, l.stream);
                    asked = true;
                    NCCL_CHECK(l.comm, sent);
                    mesh.shard.all_gather(x.p, x.p, 32);
                }
                return 0;
            });
        });
        EXPECT((e.code == 0) == early, "early %d: %s", early, e.what());
        EXPECT(early || strstr(e.what(), "ncclAllGather of 32"), "%s", e.what());
        waits = asked = false;
    }
}

// NCCL compares hosts by NCCL_HOSTID, where it is set.
TEST(ranks_with_a_host_id_each_share_a_gpu) {
    emulator::settings.devices = 1;
    Placements two;
    const auto refused = [&] { return test::fatal_of([&] { check_devices(two, hosts_of(two)); }); };
    for (const char* id : {"first", "second"}) {
        setenv("NCCL_HOSTID", id, 1);
        two.push_back(own_placement(true));
    }
    unsetenv("NCCL_HOSTID");
    EXPECT(refused().code == 0 && hosts_of(two).device[1] == 0, "%s", refused().what());
    two = Placements(2, own_placement(true));
    EXPECT(refused().code == kExitConfig && own_placement(false).boot[0], "%s", refused().what());
    emulator::settings.devices = 16;
}

// Who comes from another generation is sent away; an id is of one generation alone.
TEST(greetings_are_of_one_generation) {
    own_generation = 7;
    const GpuGreeting first = own_greeting(0), again = own_greeting(0), other = own_greeting(1);
    EXPECT(memcmp(&first.id, &again.id, sizeof first.id) && first.generation == 7 && !other.id.bytes[0]);
    check_generation({first, other});
    own_generation = 8;
    bool lost = false;
    try {
        check_generation({own_greeting(0), other});
    } catch (const Lost&) {
        lost = true;
    }
    own_generation = 0;
    EXPECT(lost, "a rank of an earlier generation has joined");
}

// A process that lives on keeps its GPU, whatever its rank is now.
TEST(ranks_keep_their_gpus) {
    emulator::settings.devices = 4;
    Placements four(4, own_placement(true));
    four[0].held = 1 + 2;
    four[2].held = 1 + 0;
    EXPECT(hosts_of(four).device == std::vector<int>({2, 1, 0, 3}));
    emulator::settings.devices = 16;
}
