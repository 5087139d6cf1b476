// A rank's memory and the bytes it sends in a step equal closed formulas, written down without the code.
#include <map>
#include <set>

#include "test/zero.h"

namespace PRECISION {

static size_t up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Elements of the buckets of zero_config()'s model: d shards, t ranks of tensor parallelism, `blocks` blocks.
struct Sizes {
    size_t d, t, blocks, C;
    bool first, last;
    size_t wte, wpe, block, final;
    explicit Sizes(size_t d, size_t t = 1, size_t blocks = 5, bool first = true, bool last = true,
                   size_t C = 24)
        : d(d), t(t), blocks(blocks), C(C), first(first), last(last) {
        const size_t A = C / t, F = 4 * C / t, pad = 64 * d;
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

// A reduction over `ranks` ranks of `count` elements, cut into equal slices.
static size_t reduced(size_t ranks, size_t count) { return ranks > 1 ? up(count, ranks) * sizeof(real) : 0; }

// The receive buffer of reductions: as large as the largest reduction over any axis, where an export reduces
// 65,536 elements at a time over the world. Reductions over replicas and over tp have parts of their own.
static size_t staging_of(const Model& model, const Sizes& s, size_t n, size_t packed) {
    const size_t d = s.d, largest = std::max({s.block, s.wte, s.wpe, s.final});
    const Mesh& mesh = model.mesh;
    const size_t most = std::max({reduced(d, largest), reduced(size_t(mesh.tied.size), s.wte / d),
                                  reduced(size_t(mesh.world.size), 65536)}) +
                        reduced(size_t(mesh.replica.size), largest / d);
    const size_t streams = s.t > 1 ? n * s.C * s.t * sizeof(floatX) : 0;
    return up(most, 64) + up(std::max(streams, reduced(s.t, packed)), 64);
}

static constexpr size_t w = sizeof(floatX), g = sizeof(real);

// Bytes of the blocks' activations, for `alive` micro-batches, and of the block scratch.
static std::pair<size_t, size_t> blocks_of(const Sizes& s, Recompute level, size_t alive) {
    const auto b = [](size_t bytes) { return up(bytes, 64); };
    const size_t t = s.t, C = s.C, N = T, n = up(N, t) / t, A = C / t, F = 4 * C / t, all = n * t * C;
    const size_t block = 4 * b(n * C * w) + b(N * 3 * A * w) + b(N * A * w) + 2 * b(N * F * w) +
                         4 * b(n * g) + b(N * (3 / t) * g);
    // bytes of a block that are computed again: norms and GELU, or everything but x (with tp x and x1)
    const bool whole = level == Recompute::Block;
    const size_t again = whole                           ? block - (t > 1 ? 2 : 1) * b(n * C * w)
                         : level == Recompute::Selective ? 2 * b(n * C * w) + b(N * F * w)
                                                         : 0;
    return {alive * s.blocks * (block - again) + again,
            2 * b(all * w) + b(C * w) + b(N * 3 * A * w) + b(N * A * w) + b(N * F * w) +
                (w < 8 ? b(C * g) : 0) + (t > 1 ? (whole ? 2 : 1) * b(all * w) + b(n * C * w) : 0)};
}

// Checks the memory plan of a rank with `alive` micro-batches of T tokens at once: the bytes of each row, no
// unknown row, and a sum that equals the allocation.
static void expect_plan(const std::string& where, const Model& model, const Sizes& s, int zero,
                        size_t alive = 1, bool mpi = false) {
    auto plan = plan_of(model);
    std::set<std::string> known = {"scratch of operations", "gradient norm", "gradients to sum over tp"};
    size_t sum = 0;
    const auto expect = [&](const char* row, size_t bytes) {
        EXPECT(plan[row] == up(bytes, 64), "%s, ZeRO %d: %s: %zu bytes, expected %zu", where.c_str(), zero,
               row, plan[row], bytes);
        known.insert(row);
        sum += up(bytes, 64);
    };
    const size_t d = s.d, P = s.all(), state = zero == 0 ? P * g : P / d * g;
    const bool grads = zero >= 2 && d > 1, weights = zero == 3 && d > 1;
    expect("weights", weights ? P / d * w : P * w);
    expect("gathered blocks", weights ? 2 * s.block * w : 0);
    expect("gathered ends", weights ? s.ends() * w : 0);
    expect("gradients", grads ? (s.ends() + s.blocks * s.block / d) * g : P * g);
    expect("gradients of two blocks", grads ? 2 * s.block * g : 0);
    expect("first moments", state);
    expect("second moments", state);
    expect("master weights", kMasterIsParam ? 0 : state);

    const auto b = [](size_t bytes) { return up(bytes, 64); };
    const size_t t = s.t, C = s.C, N = T, n = up(N, t) / t;
    const auto [activations, scratch] = blocks_of(s, model.gpt.shape.level, alive);
    expect("activations", activations);
    expect("block scratch", scratch);
    expect("final norm", s.last ? alive * (2 * b(n * C * w) + 2 * b(n * g)) : 0);
    expect("logits of a chunk", s.last ? b(N * 128 * w) + (t > 1 ? b(t * N * 3 * g) : 0) : 0);
    expect("losses", (s.last ? b(N * g) : 0) + 64);
    expect("gradient of the stream", n * C * w);
    expect("stream to the next stage", s.last ? 0 : n * C * w);
    expect("gradient of wte as embedding", kIsFp64 && s.first && s.last ? 128 * C * w : 0);
    expect("streams to be sent", s.first && s.last ? 0 : n * C * w);
    expect("tokens", (alive + 1) * 2 * T * sizeof(int32_t));
    const size_t ranks = size_t(model.mesh.world.size), figures = 9 * sizeof(double);
    expect("statistics of a step", 2 * b(figures) + (ranks > 1 ? b(ranks * figures) : 0));

    // tensors that each rank of tp has whole: two norms and two biases of a block, wpe, the final norm
    const size_t packed = plan["gradients to sum over tp"] / g;
    const size_t shared = s.blocks * 6 * b(C) + (s.first ? b(T * C) : 0) + (s.last ? 2 * b(C) : 0);
    EXPECT(t == 1 ? packed == 0 : packed > 0 && packed <= shared + (s.blocks + 2) * 64 * d,
           "%s: %zu elements to sum over tp, of %zu", where.c_str(), packed, shared);
    // threads read each other's memory
    expect("staging of reductions", mpi ? staging_of(model, s, n, packed) : 0);
    EXPECT(plan["gradient norm"] <= 4096 && plan["scratch of operations"] == b(model.scratch_bytes),
           "%s: %zu and %zu bytes", where.c_str(), plan["gradient norm"], plan["scratch of operations"]);

    sum += plan["gradient norm"] + plan["scratch of operations"] + plan["gradients to sum over tp"];
    EXPECT(model.arena.bytes() == up(sum, 4096), "%s, ZeRO %d: %zu bytes in all, expected %zu",
           where.c_str(), zero, model.arena.bytes(), sum);
    for (const auto& [row, bytes] : plan)
        EXPECT(bytes == 0 || known.count(row) || row == "rounding to pages", "nobody expects %s, %zu bytes",
               row.c_str(), bytes);
}

TEST(memory_of_a_rank_is_the_closed_form) {
    for (const int d : {1, 2, 3, 4})
        for (const int replicas : {1, 2})
            for (int zero = 0; zero < 4; zero++) {
                Config cfg = zero_config(d * replicas, zero, 1);
                cfg.parallel.zero_group = d;
                if (kZeroRows % (d * replicas)) continue;
                const auto mesh = described_mesh(cfg.parallel, d * replicas, d * replicas - 1);
                expect_plan(fmt::format("{} x {} ranks", replicas, d), Model(cfg, mesh->mesh, 1, false),
                            Sizes(size_t(d)), zero);
            }
}

// Blocks 0 and 1 are the first pipeline stage, 2 to 4 the last. Both stages hold wte. Two micro-batches are
// alive on the first.
TEST(memory_of_stages_and_parts_is_the_closed_form) {
    for (const char* level : {"none", "selective", "block"})
        for (const auto& [tp, pp, stage] : {std::array{1, 1, 0}, {1, 2, 0}, {1, 2, 1},
                                            {3, 1, 0}, {3, 2, 0}, {3, 2, 1}})
            for (int zero = 0; zero < 4; zero++) {
                const int dp = 2, ranks = dp * tp * pp;
                Config cfg = zero_config(ranks, zero, 1);
                cfg.parallel.tp = tp, cfg.parallel.pp = pp, cfg.memory.recompute = level;
                const auto mesh = described_mesh(cfg.parallel, ranks, stage * tp);
                const Model model(cfg, mesh->mesh, 1, false);
                const size_t blocks = pp == 1 ? 5 : stage == 0 ? 2 : 3;
                expect_plan(fmt::format("{}, tp {}, stage {} of {}", level, tp, stage, pp), model,
                            Sizes(2, size_t(tp), blocks, stage == 0, stage == pp - 1), zero,
                            size_t(pp - stage));
            }
}

// Processes need a buffer for reductions. C = 192: a block is the largest, if dp > 1; C = 24: an export is.
TEST(memory_of_processes_has_staging) {
    for (const int C : {24, 192})
        for (const auto& [dp, tp, pp, group] : {std::array{2, 1, 1, 0}, {4, 1, 1, 2}, {2, 3, 2, 0},
                                                {1, 3, 1, 0}, {1, 1, 2, 0}})
            for (int zero = 0; zero < 4; zero++) {
                Config cfg = zero_config(dp * tp * pp, zero, 1);
                cfg.parallel.tp = tp, cfg.parallel.pp = pp, cfg.parallel.zero_group = group;
                cfg.parallel.transport = "mpi", cfg.model.channels = C;
                const size_t d = size_t(group ? group : dp);
                const auto mesh = described_mesh(cfg.parallel, dp * tp * pp, 0);
                const Sizes s(d, size_t(tp), pp == 1 ? 5 : 2, true, pp == 1, size_t(C));
                expect_plan(fmt::format("C {}, dp {}, tp {}, pp {} by MPI", C, dp, tp, pp),
                            Model(cfg, mesh->mesh, 1, false), s, zero, size_t(pp), true);
            }
}

// NCCL wants the buffers of a collective at the same offset of each rank's memory. Meshes of several ranks on
// each axis cut tensors of odd sizes.
TEST(ranks_of_a_stage_have_the_same_plan) {
    for (const auto& [dp, tp, pp, group] : {std::array{1, 3, 1, 0}, {4, 3, 1, 0}, {4, 3, 2, 2}, {3, 1, 1, 0}})
        for (int zero = 0; zero < 4; zero++) {
            const int ranks = dp * tp * pp;
            Config cfg = zero_config(ranks, zero, 1);
            cfg.model.layers = 24;
            cfg.parallel.tp = tp, cfg.parallel.pp = pp, cfg.parallel.zero_group = group;
            std::vector<std::vector<Arena::Row>> plans;
            for (int rank = 0; rank < ranks; rank++) {
                const auto mesh = described_mesh(cfg.parallel, ranks, rank);
                plans.push_back(Model(cfg, mesh->mesh, 1, true).arena.plan());
                const auto &first = plans[size_t(rank / tp % pp * tp)], &own = plans.back();
                EXPECT(own.size() == first.size());
                for (size_t i = 0; i < own.size(); i++)
                    EXPECT(own[i].bytes == first[i].bytes,
                           "dp %d tp %d pp %d, ZeRO %d, rank %d: %zu bytes of %s, another rank has %zu", dp,
                           tp, pp, zero, rank, own[i].bytes, own[i].name.c_str(), first[i].bytes);
            }
        }
}

TEST(offloading_moves_state_to_the_host) {
    Config cfg = zero_config(2, 1);
    const auto mesh = described_mesh(cfg.parallel, 2, 0);
    const Model here(cfg, mesh->mesh, 2, false);
    cfg.memory.offload = "optimizer";
    const Model there(cfg, mesh->mesh, 2, false);
    const size_t states = (kMasterIsParam ? 2 : 3) * Sizes(2).all() / 2 * sizeof(real);
    const auto bytes = [](const Arena& arena) {
        size_t sum = 0;
        for (const auto& row : arena.plan()) sum += row.name == "rounding to pages" ? 0 : row.bytes;
        return sum;
    };
    const size_t with = bytes(there.host), without = bytes(here.host);
    EXPECT(with == without + states, "%zu bytes on the host, %zu and %zu expected", with, without, states);
    for (const auto& row : there.arena.plan()) {
        EXPECT(row.name != "first moments" && row.name != "master weights", "%s on the device",
               row.name.c_str());
        if (row.name != "offloaded state in use") continue;
        size_t largest = 0;                 // slice: the shard of a bucket
        const Shards& s = there.shards;
        for (int b = 0; b < s.layout.count(); b++) largest = std::max(largest, s.shard(b));
        const size_t chunks = 3 * s.state.size() * largest * sizeof(real);
        EXPECT_NEAR(double(row.bytes) / double(chunks), 1, 0.01);
    }
}

// Bytes that rank 0 sends in a step: to ranks with other shards, and to ranks with copies of the same shard.
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

// P parameters of w bytes with gradients of g bytes, d ranks, m micro-batches. E of the P lie in wte, wpe and
// the final norm: a rank sums their gradients over micro-batches before sending, and keeps their weights
// gathered during a step. Two blocks stay gathered where forward turns into backward, and backward into the
// next forward.
//
//     ZeRO 0     (d-1)/d  P 2g
//     ZeRO 1     (d-1)/d  P (g + w)
//     ZeRO 2     (d-1)/d  ((P - E) (m g + w)   + E (g + w))
//     ZeRO 3     (d-1)/d  ((P - E) (m g + 2mw) + E (g + w)  - (2m - 1) 2 blocks w)
//
// With bf16 on the wire g is 2 where gradients are summed; ZeRO 0 gathers the sums in full precision.
static void expect_bytes(const char* dtype) {
    constexpr size_t w = sizeof(floatX), whole = sizeof(real);
    const size_t g = !strcmp(dtype, "bf16") ? 2 : whole;
    for (const int d : {2, 3, 4})
        for (const int micro_batch : {1, kZeroRows / d})
            for (int zero = 0; zero < 4; zero++) {
                const Sizes s{size_t(d)};
                const size_t m = size_t(kZeroRows / d / micro_batch), blocks = s.all() - s.ends();
                size_t expected = 0;
                if (zero == 0) expected = s.all() * (g + whole);
                if (zero == 1) expected = s.all() * (g + w);
                if (zero == 2) expected = blocks * (m * g + w) + s.ends() * (g + w);
                if (zero == 3)
                    expected =
                        blocks * (m * g + 2 * m * w) + s.ends() * (g + w) - (2 * m - 1) * 2 * s.block * w;
                expected = expected / size_t(d) * size_t(d - 1);
                Config cfg = zero_config(d, zero, micro_batch);
                cfg.parallel.reduce_dtype = dtype;
                const uint64_t bytes = bytes_of_a_step(cfg).shard;
                EXPECT(bytes == expected, "%d ranks, %zu micro-batches, ZeRO %d, %s: %zu bytes, expected %zu",
                       d, m, zero, dtype, size_t(bytes), expected);
            }
}

TEST(bytes_that_are_sent_are_the_formulas) {
    expect_bytes("fp32");
    if (!kIsFp64) expect_bytes("bf16");
}

// Two copies of two shards: the all-reduce of a shard's gradients, once a step, sends the shard's size.
TEST(bytes_between_copies_are_the_formula) {
    for (int zero = 0; zero < 4; zero++) {
        Config cfg = zero_config(4, zero, 1);
        cfg.parallel.zero_group = 2;
        const uint64_t bytes = bytes_of_a_step(cfg).replica, expected = Sizes(2).all() / 2 * sizeof(real);
        EXPECT(bytes == expected, "ZeRO %d: %zu bytes, expected %zu", zero, size_t(bytes), size_t(expected));
    }
}

}  // namespace PRECISION
