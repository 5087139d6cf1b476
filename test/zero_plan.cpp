// Memory of a rank and bytes that it sends, against formulas that know nothing of the code.
#include <map>

#include "test/zero.h"

namespace PRECISION {

static size_t up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements of the buckets of zero_config()'s model: d shards, t ranks of tensor parallelism, `blocks` blocks.
struct Sizes {
    size_t wte, wpe, block, final, blocks;
    explicit Sizes(size_t d, size_t t = 1, size_t blocks = 5, bool first = true, bool last = true)
        : blocks(blocks) {
        const size_t C = 24, A = C / t, F = 4 * C / t, pad = 64 * d;
        const auto tensor = [](size_t n) { return up(n, 64); };
        wte = first || last ? up(128 * C, pad) : 0;
        wpe = first ? up(tensor(T * C), pad) : 0;
        final = last ? up(2 * tensor(C), pad) : 0;
        block = up(6 * tensor(C) + tensor(3 * A) + tensor(F) + tensor(3 * A * C) + tensor(C * A) +
                       2 * tensor(F * C), pad);
    }
    size_t ends() const { return wte + wpe + final; }
    size_t all() const { return ends() + blocks * block; }
};

static std::map<std::string, size_t> plan_of(const Model& model) {
    std::map<std::string, size_t> plan;
    for (const auto& row : model.arena.plan())
        plan[row.name.starts_with("activations: ") ? "activations" : row.name] += row.bytes;
    return plan;
}

static void expect_plan(const std::string& where, const Model& model, const Sizes& s, size_t d, int zero) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real);
    auto plan = plan_of(model);
    const auto expect = [&](const char* row, size_t bytes) {
        EXPECT(plan[row] == up(bytes, 64), "%s, ZeRO %d: %s: %zu bytes, expected %zu", where.c_str(), zero,
               row, plan[row], bytes);
    };
    const size_t P = s.all(), state = zero == 0 ? P * g : P / d * g;
    const bool grads = zero >= 2 && d > 1, weights = zero == 3 && d > 1;
    expect("weights", weights ? P / d * w : P * w);
    expect("gathered blocks", weights ? 2 * s.block * w : 0);
    expect("gathered ends", weights ? s.ends() * w : 0);
    expect("gradients", grads ? (s.ends() + s.blocks * s.block / d) * g : P * g);
    expect("gradients of two blocks", grads ? 2 * s.block * g : 0);
    expect("first moments", state);
    expect("second moments", state);
    expect("master weights", kMasterIsParam ? 0 : state);
    expect("staging of reductions", 0);         // threads read each other's memory
}

TEST(memory_of_a_rank_is_the_closed_form) {
    for (const int d : {1, 2, 3, 4})
        for (const int replicas : {1, 2})
            for (int zero = 0; zero < 4; zero++) {
                Config cfg = zero_config(d * replicas, zero, 1);
                cfg.parallel.zero_group = d;
                if (kRows % (d * replicas)) continue;
                const auto mesh = described_mesh(cfg.parallel, d * replicas, d * replicas - 1);
                expect_plan(strf("%d x %d ranks", replicas, d), Model(cfg, mesh->mesh, 1, false),
                            Sizes(size_t(d)), size_t(d), zero);
            }
}

// Blocks 0 and 1 are the first stage, 2 to 4 the last. Each holds wte. Two micro-batches are alive on the
// first.
TEST(memory_of_stages_and_parts_is_the_closed_form) {
    constexpr size_t w = sizeof(floatX), g = sizeof(real), C = 24;
    for (const int tp : {1, 3})
        for (const int pp : {1, 2})
            for (int stage = 0; stage < pp; stage++)
                for (int zero = 0; zero < 4; zero++) {
                    const int dp = 2, ranks = dp * tp * pp;
                    Config cfg = zero_config(ranks, zero, 1);
                    cfg.parallel.tp = tp, cfg.parallel.pp = pp;
                    const auto mesh = described_mesh(cfg.parallel, ranks, stage * tp);
                    const Model model(cfg, mesh->mesh, 1, false);
                    const size_t t = size_t(tp), blocks = pp == 1 ? 5 : stage == 0 ? 2 : 3;
                    const std::string where = strf("tp %d, stage %d of %d", tp, stage, pp);
                    expect_plan(where, model, Sizes(2, t, blocks, stage == 0, stage == pp - 1), 2, zero);

                    const size_t N = T, n = up(N, t) / t, A = C / t, F = 4 * C / t,
                                 alive = size_t(pp - stage);
                    const auto b = [](size_t bytes) { return up(bytes, 64); };
                    const size_t block = 4 * b(n * C * w) + b(N * 3 * A * w) + b(N * A * w) +
                                         2 * b(N * F * w) + 4 * b(n * g) + b(N * (3 / t) * g);
                    EXPECT(plan_of(model)["activations"] == alive * blocks * block,
                           "%s: activations: %zu bytes, expected %zu", where.c_str(),
                           plan_of(model)["activations"], alive * blocks * block);
                }
}

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

// Bytes that rank 0 sends in a step to ranks with other shards, and to those with copies of its own.
struct Sent { uint64_t shard = 0, replica = 0; };

static Sent bytes_of_a_step(const Config& cfg) {
    Sent bytes;
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        Trace trace;
        Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
        const auto sent = [](const Axis& axis) {
            uint64_t sum = 0;
            for (int verb = 0; axis.group && verb < kVerbs; verb++) sum += axis.group->moved[verb].bytes;
            return sum;
        };
        train_step(t, data, 0, trace);
        const Sent before{sent(mesh.shard), sent(mesh.replica)};
        train_step(t, data, 1, trace);
        if (mesh.rank == 0) bytes = {sent(mesh.shard) - before.shard, sent(mesh.replica) - before.replica};
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
                const uint64_t bytes = bytes_of_a_step(zero_config(d, zero, micro_batch)).shard;
                EXPECT(bytes == expected, "%d ranks, %zu micro-batches, ZeRO %d: %zu bytes, expected %zu", d,
                       m, zero, size_t(bytes), expected);
            }
}

// Two copies of two shards: an all-reduce of a shard's gradients sends as many bytes as there are, once a
// step.
TEST(bytes_between_copies_are_the_formula) {
    for (int zero = 0; zero < 4; zero++) {
        Config cfg = zero_config(4, zero, 1);
        cfg.parallel.zero_group = 2;
        const uint64_t bytes = bytes_of_a_step(cfg).replica, expected = Sizes(2).all() / 2 * sizeof(real);
        EXPECT(bytes == expected, "ZeRO %d: %zu bytes, expected %zu", zero, size_t(bytes), size_t(expected));
    }
}

}  // namespace PRECISION
