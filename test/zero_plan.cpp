// Memory of a rank and bytes that it sends, against formulas that know nothing of the code.
#include <atomic>
#include <map>

#include "test/zero.h"

namespace PRECISION {

static size_t up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements of the buckets of zero_config()'s model over d shards.
struct Sizes {
    size_t wte, wpe, block, final, blocks = 5;
    explicit Sizes(size_t d) {
        const size_t C = 24, F = 4 * C, pad = 64 * d;
        const auto vector = [](size_t n) { return up(n, 64); };
        wte = up(128 * C, pad), wpe = up(up(T * C, 64), pad), final = up(2 * vector(C), pad);
        block = up(
            6 * vector(C) + vector(3 * C) + vector(F) + vector(3 * C * C) + vector(C * C) + 2 * vector(F * C),
            pad);
    }
    size_t ends() const { return wte + wpe + final; }
    size_t all() const { return ends() + blocks * block; }
};

TEST(memory_of_a_rank_is_the_closed_form) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real);
    for (const int d : {1, 2, 3, 4})
        for (int zero = 0; zero < 4; zero++) {
            const Sizes s{size_t(d)};
            const Config cfg = zero_config(d, zero, 1);
            const auto mesh = described_mesh(cfg.parallel, d, d - 1);
            const Model model(cfg, mesh->mesh, 1, false);
            std::map<std::string, size_t> plan;
            for (const auto& row : model.arena.plan()) plan[row.name] = row.bytes;
            const auto expect = [&](const char* row, size_t bytes) {
                EXPECT(plan[row] == bytes, "%d ranks, ZeRO %d: %s: %zu bytes, expected %zu", d, zero, row,
                       plan[row], bytes);
            };
            const size_t P = s.all(), n = size_t(d);
            const bool grads = zero >= 2 && d > 1, weights = zero == 3 && d > 1;
            expect("weights", weights ? P / n * w : P * w);
            expect("gathered blocks", weights ? 2 * s.block * w : 0);
            expect("gathered ends", weights ? s.ends() * w : 0);
            expect("gradients", grads ? (s.ends() + s.blocks * s.block / n) * g : P * g);
            expect("gradients of two blocks", grads ? 2 * s.block * g : 0);
            const size_t state = up(zero == 0 ? P * g : P / n * g, 64);
            expect("first moments", state);
            expect("second moments", state);
            expect("master weights", kMasterIsParam ? 0 : state);
        }
}

// What a rank says that it needs is what it takes: nothing is allocated beside the plan.
TEST(offloading_moves_state_to_the_host) {
    Config cfg = zero_config(2, 1);
    const auto mesh = described_mesh(cfg.parallel, 2, 0);
    const Model here(cfg, mesh->mesh, 2, false);
    cfg.memory.offload = "optimizer";
    const Model there(cfg, mesh->mesh, 2, false);
    const size_t states = (kMasterIsParam ? 2 : 3) * Sizes(2).all() / 2 * sizeof(real);
    EXPECT(here.host.bytes() == 0 && there.host.bytes() == up(states, 4096),
           "%zu bytes on the host, expected %zu", there.host.bytes(), states);
    for (const auto& row : there.arena.plan())
        EXPECT(row.name != "first moments" && row.name != "master weights", "%s on the device",
               row.name.c_str());
}

// Bytes that rank 0 sends over mesh.shard in one step, the second: at stage 3 the first finds nothing
// gathered.
static uint64_t bytes_of_a_step(const Config& cfg) {
    std::atomic<uint64_t> bytes{0};
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        Trace trace;
        Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
        const auto sent = [&] {
            uint64_t sum = 0;
            for (const Moved& m : mesh.shard.group->moved) sum += m.bytes;
            return sum;
        };
        train_step(t, data, 0, trace);
        const uint64_t before = sent();
        train_step(t, data, 1, trace);
        if (mesh.rank == 0) bytes = sent() - before;
        return 0;
    });
    return bytes;
}

// P parameters of w bytes with gradients of g bytes, d ranks, m micro-batches; E of the P lie in wte, wpe and
// the final norm, whose gradients are summed over micro-batches before they are sent, and whose weights stay
// gathered during a step. Two blocks stay gathered where forward turns into backward, and backward into the
// next forward.
//
//     ZeRO 0     (d-1)/d  P 2g
//     ZeRO 1     (d-1)/d  P (g + w)
//     ZeRO 2     (d-1)/d  ((P - E) (m g + w)   + E (g + w))
//     ZeRO 3     (d-1)/d  ((P - E) (m g + 2mw) + E (g + w)  - (2m - 1) 2 blocks w)
TEST(bytes_that_are_sent_are_the_formulas) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real);
    for (const int d : {2, 3, 4})
        for (const int micro_batch : {1, kRows / d})
            for (int zero = 0; zero < 4; zero++) {
                const Sizes s{size_t(d)};
                const size_t m = size_t(kRows / d / micro_batch), blocks = s.all() - s.ends();
                size_t expected = 0;
                if (zero == 0) expected = s.all() * 2 * g;
                if (zero == 1) expected = s.all() * (g + w);
                if (zero == 2) expected = blocks * (m * g + w) + s.ends() * (g + w);
                if (zero == 3)
                    expected =
                        blocks * (m * g + 2 * m * w) + s.ends() * (g + w) - (2 * m - 1) * 2 * s.block * w;
                expected = expected / size_t(d) * size_t(d - 1);
                const uint64_t bytes = bytes_of_a_step(zero_config(d, zero, micro_batch));
                EXPECT(bytes == expected, "%d ranks, %zu micro-batches, ZeRO %d: %zu bytes, expected %zu", d,
                       m, zero, size_t(bytes), expected);
            }
}

}  // namespace PRECISION
