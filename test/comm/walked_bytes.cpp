// What an all-reduce sends, against the walk of the same call on a mesh that is only described.
#include <cstring>

#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/mpi.h"
#include "llmc/ops/walk.h"
#include "test/own_processes.h"
#include "test/ranks.h"

static Config config_on(int ranks, const char* reduce, const char* dtype) {
    Config c = config_of(ranks);
    c.train.batch_tokens = 60 * 64;
    c.parallel.reduce = reduce, c.parallel.reduce_dtype = dtype;
    return c;
}

template <class T> static void expect_walked(const Config& c, const Mesh& mesh, size_t count) {
    const Axis& a = mesh.shard;
    std::vector<T> data(count, T(1.0f));
    std::vector<std::byte> staging(a.reduce_staging((count + size_t(a.size)) * sizeof(T)));
    a.lend_staging(staging.data(), staging.size());
    const uint64_t before = a.group->moved[kAllReduce].bytes;
    a.all_reduce(data.data(), count);
    const uint64_t sent = a.group->moved[kAllReduce].bytes - before;
    const auto described = described_mesh(c.parallel, mesh.world.size, mesh.rank);
    const Walk walk = walk_of({Target::Cpu, 1},
                              [&] { described->mesh.shard.all_reduce(data.data(), count); });
    EXPECT(walk.entries.size() == 1, "%zu entries", walk.entries.size());
    EXPECT(walk.costs.at(0).read == sent && sent > 0,
           "%s %s over %s, %zu elements of %zu bytes: %zu bytes walked, %zu sent",
           c.parallel.reduce.text().c_str(), c.parallel.reduce_dtype.text().c_str(), a.group->transport->name,
           count, sizeof(T), size_t(walk.costs[0].read), size_t(sent));
    a.lend_staging(nullptr, 0);
}

// On both sides of the size from which each rank sums a slice.
static void expect_walked(const Config& c, const Mesh& mesh) {
    for (const size_t count : {size_t(100), size_t(30001)}) {
        expect_walked<float>(c, mesh, count);
        expect_walked<double>(c, mesh, count);
        expect_walked<bfloat16>(c, mesh, count);
        expect_walked<int32_t>(c, mesh, count);
    }
}

TEST(a_walk_sends_what_threads_send) {
    for (const char* reduce : {"ordered", "native"})
        for (const char* dtype : {"fp32", "bf16"})
            run_threads(config_on(3, reduce, dtype), [](const Config& c, const Mesh& mesh) {
                expect_walked(c, mesh);
                return 0;
            });
}

// What mpirun starts: this binary, with this test.
TEST(processes) {
    if (launcher().world == 1) return;
    mpi_begin();
    for (const char* reduce : {"ordered", "native"})
        for (const char* dtype : {"fp32", "bf16"}) {
            const Config c = config_on(0, reduce, dtype);
            RankMesh ranks(c.parallel, launcher().world, launcher().rank);
            for (int a = 0; a < kGroups; a++)
                join_mpi(ranks.groups[a], ranks.places[size_t(a)].color, ranks.places[size_t(a)].index);
            expect_walked(c, ranks.mesh);
            ranks.mesh.shard.barrier();
        }
    mpi_end();
}

TEST(a_walk_sends_what_mpi_sends) {
    if (launcher().world > 1) return;
    test::expect_processes({3});
}
