// Every preset, small, on ranks over NCCL: the walk of a mesh that is only described, as a plan takes it,
// against a step by the emulated kernels. Also the floors that launches declare, against what ops state.
#include <algorithm>
#include <set>
#include <string_view>

#include "llmc/comm/launch/launch.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "llmc/ops/cuda/scratch.h"
#include "llmc/ops/cuda/tuning/workload.h"
#include "test/shrunk.h"
#include "test/tiny.h"
#include "test/walks.h"

namespace PRECISION {

// The floors of this thread's launches during a step, summed for each entry of its record.
struct Floors {
    const Walk* walk = nullptr;
    std::vector<Floor> of = {};
    const LaunchObserver observer = {this, before, [](void*, const void*) {}};

    static void before(void* self, const void*, const Floor& floor) {
        Floors& f = *static_cast<Floors*>(self);
        if (!f.walk || f.walk->entries.empty()) return;
        f.of.resize(f.walk->entries.size());
        f.of.back().bytes += floor.bytes, f.of.back().mma_flops += floor.mma_flops;
    }
};

// Whether the launches of an op declare the bytes that the op states. Beside these a launch may move partial
// sums in scratch. Fused and unfused activations of products differ by reads and writes of their input, and
// by a second read of dpre for the gradient of a bias.
static bool near(const Cost& c, double bytes) {
    struct Bounds { const char* op; double least, most; };
    static constexpr Bounds kTimes[] = {
        {"attention_forward", 1, 1.6},          // blocks share few keys where sequences are short
        {"attention_backward", 1.5, 1.9},       // of queries, then of keys: each reads both
        {"encoder_backward", 1.3, 2.3},         // sorts the tokens
        {"matmul_gelu", 0.8, 1.2}, {"matmul_relu2", 1, 1.5}, {"matmul_swiglu", 1, 1.4},
        {"matmul", 0.98, 1.01}};                // a bias is in one of the two
    // attention's partial sums for the gradient of a bias lie beside delta
    const double room = c.kind == Kind::Attention ? 2 * double(c.needs.scratch) : 0;
    const double stated = double(c.read + c.written);
    for (const Bounds& b : kTimes)
        if (std::string_view(c.name).starts_with(b.op))
            return bytes >= b.least * stated && bytes <= b.most * stated + room;
    return bytes >= stated && bytes <= stated + 1.5 * double(c.needs.scratch) + 8;
}

static void expect_floors(const std::string& where, const Walk& done, const std::vector<Floor>& floors) {
    std::set<std::string> seen;
    double products = 0;
    for (size_t i = 0; i < floors.size(); i++) {
        const Cost& c = done.of(done.entries[i]);
        if (c.axis || floors[i].bytes == 0) continue;       // sums of collectives; launches of no kernel
        seen.insert(c.name);
        EXPECT(near(c, floors[i].bytes), "%s: %s", where.c_str(),
               fmt::format("floors of {:.0f} bytes, walked {}", floors[i].bytes,
                           text_of(done, done.entries[i])).c_str());
        if (c.kind != Kind::Product) continue;
        products += c.flops;
        EXPECT(floors[i].mma_flops == c.flops, "%s: %s does %g FLOPs and states %g", where.c_str(), c.name,
               floors[i].mma_flops, c.flops);
    }
    EXPECT(seen.size() > 9 && products > 0, "%s: %zu ops launched kernels", where.c_str(), seen.size());
}

// The tasks that tuning takes from a walk: products, and passes of attention.
static std::set<cuda::Task> tasks_of(const Walk& walk) {
    const std::vector<cuda::Task> tasks = cuda::tasks_of(walk);
    return {tasks.begin(), tasks.end()};
}

static void expect_walked(const std::string& name, const Config& cfg) {
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        const std::string where = fmt::format("{}, rank {}", name, mesh.rank);
        Tiny t(c, false, mesh);
        for (const GroupRow& row : group_rows)
            if (Group* g = (mesh.*row.axis).group) std::fill_n(g->moved, kVerbs, Moved());
        Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
        Floors floors;
        launch_observer = &floors.observer;
        const Walk done = walk_of(ops::target(), [&] {
            floors.walk = context.walk;
            t.model.pipeline.run(data);
            enqueue_update(t.model, 1e-3, 0);
        }, true);
        launch_observer = nullptr;
        const auto moved = sent(mesh);
        t.model.statistics->read();
        const auto described = described_mesh(c.parallel, mesh.world.size, mesh.rank);
        const Walk walk = walk_of_run(c, described->mesh,
                                      {.micro_batch = c.train.micro_batch, .micros = 0});
        expect_same(where, walk, done);
        EXPECT(sent(walk) == moved && !moved.empty(), "%s: bytes sent differ", where.c_str());
        const size_t stated = walk.needs().scratch, used = done.scratch_used;
        EXPECT(stated >= used && stated <= used + 2 * kScratchAlign && stated <= t.model.scratch_bytes,
               "%s: %zu bytes of scratch walked, %zu used", where.c_str(), stated, used);
        expect_floors(where, done, floors.of);
        // a plan's step of few micro-batches has every task of the whole step, and no other
        const auto tuned = tasks_of(t.model.step), used_tasks = tasks_of(done);
        EXPECT(tuned == used_tasks && tuned.size() > 3, "%s: %zu tasks to tune, %zu in the step",
               where.c_str(), tuned.size(), used_tasks.size());
        return 0;
    });
}

// Each preset on one of four meshes, another than in walk; LATTICE=all: in both precisions, on every mesh.
TEST(every_preset_does_what_is_walked) {
    struct On { int tp, pp, zero; const char* recompute; };
    const On meshes[] = {{2, 1, 0, "selective"}, {1, 2, 1, "none"}, {1, 1, 3, "block"}, {1, 1, 2, "none"}};
    const std::vector<std::string> presets = preset_paths();
    const bool all = walks_all();
    for (size_t i = 0; i < presets.size() * std::size(meshes); i++) {
        const size_t preset = i / std::size(meshes), mesh = i % std::size(meshes);
        if (!all && (preset % 2 != kIsBf16 || mesh != (preset / 2 + 1) % std::size(meshes))) continue;
        const std::string& path = presets[preset];
        Config cfg = shrunk_for_gpus(path);
        On on = meshes[mesh];
        if (cfg.model.heads % on.tp) on.tp = 1;                 // the 25 heads of gpt2_1558M
        cfg.parallel.ranks = 2, cfg.parallel.transport = "nccl";
        cfg.parallel.tp = on.tp, cfg.parallel.pp = on.pp, cfg.parallel.zero = on.zero;
        cfg.memory.recompute = on.recompute;
        expect_walked(fmt::format("{}, tp {}, pp {}, ZeRO {}", path, on.tp, on.pp, on.zero), cfg);
    }
}

}  // namespace PRECISION
