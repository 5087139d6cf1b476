// Ranks that fail, and calls that do not fit each other, end the job with a word.
#include <cstring>

#include "llmc/comm/launch/launch.h"
#include "test/ranks.h"
#include "test/test.h"

TEST(a_failing_rank_ends_all) {
    for (int failing = 0; failing < 3; failing++) {
        const Fatal e = test::fatal_of([&] {
            run_threads(config_of(3), [&](Config, const Mesh& mesh) {
                mesh.shard.barrier();
                CHECK_INPUT(mesh.rank != failing, "rank {} has enough", failing);
                for (;;) mesh.shard.barrier();
                return 0;
            });
        });
        EXPECT(e.code == kExitConfig && strstr(e.what(), "has enough"), "%d: %s", e.code, e.what());
    }
}

TEST(misuse_is_a_bug) {
    const auto run = [](auto body) {
        return test::fatal_of([&] {
            run_threads(config_of(2), [&](Config, const Mesh& m) {
                body(m.shard);
                return 0;
            });
        });
    };
    const auto has = [](const Fatal& e, const char* words) {
        EXPECT(e.code == kExitInternal && strstr(e.what(), words), "%d: %s", e.code, e.what());
    };
    float x[64] = {};
    has(run([&](const Axis& a) {
        a.start_reduce_scatter(x + 32 + a.index, x, 1);
        a.start_reduce_scatter(x + 40 + a.index, x, 1);
    }), "two reductions over shard are in flight");
    has(run([&](const Axis& a) {
        for (int i = 0; i < 3 && a.index == 0; i++) a.start_send(x, 1, 1);
    }), "more than 2 sends to rank 1 of shard");
    has(run([&](const Axis& a) {
        const size_t sent[] = {1, 1}, received[] = {1, 2};
        Pending p = a.start_all_to_all(x + 8 * (a.index + 1), x, sent, received);
        a.wait(p);
    }), "sent 1 elements, 2 are expected");
    has(run([&](const Axis& a) { a.broadcast(x, 1, 2); }), "rank 2 of shard, which has 2");
    has(run([&](const Axis& a) { a.index ? a.send(x, 2, 0) : a.recv(x + 8, 3, 1); }),
        "sent 8 bytes, 12 are expected");
}
