// The memory plan against a closed form that knows nothing of the tables.
#include <cstdlib>
#include <map>

#include "llmc/comm/launch/launch.h"
#include "llmc/train/plan/estimate.h"
#include "test/tiny.h"

namespace PRECISION {

// Sizes are multiples of 64, so no size is rounded: N = B T = 64 tokens.
static constexpr size_t L = 3, C = 64, NH = 4, T = 32, B = 2, N = B * T, V = 200, Vp = 256;
static constexpr size_t x = sizeof(floatX), r = sizeof(real);

static Config plan_config(const char* recompute) {
    Config cfg;
    cfg.model = {.layers = L, .heads = NH, .channels = C, .context = T, .vocab = V, .init = "random"};
    cfg.train = {.steps = 5, .batch_tokens = 4 * N, .micro_batch = B, .max_skips = 0};
    cfg.memory.recompute = recompute;
    return cfg;
}

// The rows of the plan, those of activations summed.
static std::map<std::string, size_t> plan_of(const Model& model) {
    std::map<std::string, size_t> plan;
    for (const auto& row : model.arena.plan())
        plan[row.name.starts_with("activations: ") ? "activations" : row.name] += row.bytes;
    return plan;
}

static Model make_model(const Config& cfg, bool generates = false) {
    return Model(cfg, Mesh(), B, generates);
}

TEST(rows_sum_to_what_is_allocated) {
    for (const char* level : {"none", "selective", "block"})
        for (const bool generates : {false, true}) {
            const Model model = make_model(plan_config(level), generates);
            size_t sum = 0;
            for (const auto& row : model.arena.plan()) sum += row.bytes;
            const bool pages = sum % 4096 == 0;
            EXPECT(sum == model.arena.bytes() && pages, "rows sum to %zu, the arena has %zu", sum,
                   model.arena.bytes());
        }
}

TEST(weights_and_optimizer_as_counted_by_hand) {
    const size_t P = Vp * C + T * C + L * (12 * C * C + 13 * C) + 2 * C;
    const Model model = make_model(plan_config("none"));
    auto plan = plan_of(model);
    EXPECT(plan["weights"] == P * x, "weights: %zu bytes, expected %zu", plan["weights"], P * x);
    for (const char* row : {"gradients", "first moments", "second moments"})
        EXPECT(plan[row] == P * r, "%s: %zu bytes, expected %zu", row, plan[row], P * r);
    EXPECT(plan["master weights"] == (kIsBf16 ? P * r : 0), "master weights: %zu bytes",
           plan["master weights"]);
    const size_t parameters = model.shards.layout.parameters;
    EXPECT(parameters == P - (Vp - V) * C, "%zu parameters", parameters);
}

// Per token and block, in floatX: x, ln1, 3 qkv, atty, x1, ln2, 4 pre, 4 act = 16 C; in real: two means, two
// rstds, NH lse.
TEST(activations_as_counted_by_hand) {
    const size_t stats = N * (4 + NH) * r;
    const std::map<std::string, size_t> expected = {
        {"none", L * (16 * N * C * x + stats)},
        {"selective", L * (10 * N * C * x + stats) + 6 * N * C * x},        // ln1, ln2, act are shared
        {"block", L * N * C * x + 15 * N * C * x + stats},                  // x alone is not
    };
    for (const auto& [level, bytes] : expected) {
        auto plan = plan_of(make_model(plan_config(level.c_str())));
        EXPECT(plan["activations"] == bytes, "%s: %zu bytes, expected %zu", level.c_str(),
               plan["activations"], bytes);
        const size_t dbias = x < 8 ? C * r : 0;             // sums_on_the_way()
        EXPECT(plan["block scratch"] == 10 * N * C * x + C * x + dbias, "block scratch: %zu bytes",
               plan["block scratch"]);
        EXPECT(plan["final norm"] == 2 * N * C * x + 2 * N * r, "final norm: %zu bytes", plan["final norm"]);
        EXPECT(plan["logits of a chunk"] == N * Vp * x, "logits: %zu bytes", plan["logits of a chunk"]);
        EXPECT(plan["losses"] == N * r + 64, "losses: %zu bytes", plan["losses"]);
        EXPECT(plan["gradient of the stream"] == N * C * x, "gradient of the stream: %zu bytes",
               plan["gradient of the stream"]);
    }
}

TEST(evaluation_alone_needs_no_gradients) {
    Config cfg = plan_config("none");
    cfg.train.steps = cfg.checkpoint.every = 0;
    auto plan = plan_of(make_model(cfg));
    for (const char* row :
         {"gradients", "master weights", "first moments", "second moments", "gradient of the stream"})
        EXPECT(plan[row] == 0, "%s: %zu bytes", row, plan[row]);
    EXPECT(plan["activations"] <= L * N * C * x + 15 * N * C * x + N * (4 + NH) * r, "activations: %zu bytes",
           plan["activations"]);
}

TEST(generation_holds_keys_and_values) {
    auto plan = plan_of(make_model(plan_config("none"), true));
    EXPECT(plan["generation: keys and values"] == L * T * 3 * C * x, "%zu bytes",
           plan["generation: keys and values"]);
}

// As where a device has less: the micro-batch, and the refusal.
TEST(a_limit_of_memory_is_kept) {
    Config cfg = plan_config("none");
    cfg.train.micro_batch = 0;
    cfg.train.batch_tokens = 12 * T;
    const double four = double(largest_plan(cfg, Mesh(), 4, false));
    cfg.memory.device_gb = 1.12e-9 * four;           // a micro-batch takes up to 90%
    const size_t room = available_to_rank(Mesh(), cfg.memory);
    EXPECT_NEAR(double(room), 1.12 * four, 2);
    EXPECT(fitting_micro_batch(cfg, Mesh(), false, room) == 4, "not four rows");
    cfg.memory.device_gb = 1e-6;
    const Fatal e = test::fatal_of([&] {
        fitting_micro_batch(cfg, Mesh(), false, available_to_rank(Mesh(), cfg.memory));
    });
    EXPECT(e.code == kExitConfig && strstr(e.what(), "1.00 kB are available by memory.device_gb"), "%d: %s",
           e.code, e.what());
}

TEST(micro_batch_zero_takes_what_fits) {
    Config cfg = plan_config("none");
    cfg.train.micro_batch = 0;
    cfg.train.batch_tokens = 12 * T;
    const int rows = choose_micro_batch(cfg, Mesh(), false, available_to_rank(Mesh(), cfg.memory));
    EXPECT(rows == 12, "%d of 12 sequences, though all fit", rows);
    cfg.model.context = 1 << 22,
    cfg.train.batch_tokens = int64_t(12) << 22;  // a sequence takes more than any machine has
    const int least = choose_micro_batch(cfg, Mesh(), false, available_to_rank(Mesh(), cfg.memory));
    const bool divides = 12 % least == 0;
    EXPECT(least < 12 && divides, "%d sequences of 4 million tokens", least);
}

// Refused before any allocation, by the plan and free memory; the message names settings that fit.
TEST(what_does_not_fit_is_refused_with_what_does) {
    Config cfg = plan_config("none");
    cfg.train.batch_tokens = 12 * T;
    const auto plan = [&](const char* level, int rows) {
        Config c = cfg;
        c.memory.recompute = level;
        return Model(c, Mesh(), rows, false).bytes();
    };
    const auto pick = [&](int rows, size_t available) {
        cfg.train.micro_batch = rows;
        return fitting_micro_batch(cfg, Mesh(), false, available);
    };
    const auto refuse = [&](int rows, size_t available, const std::vector<std::string>& words) {
        test::expect_words("micro-batch", test::fatal_of([&] { pick(rows, available); }), words);
    };
    EXPECT(pick(6, plan("none", 6)) == 6 && pick(12, 0) == 12, "what fits, and where nothing is known");
    EXPECT(pick(0, plan("none", 4) * 10 / 9 + 10) == 4, "the largest that fits is chosen");
    const auto go_on = [&](int saved, size_t available) {       // with the checkpoint's
        return fitting_micro_batch(cfg, Mesh(), false, available, saved);
    };
    const size_t room = plan("none", 4) * 10 / 9 + 10;
    EXPECT(go_on(2, room) == 2 && go_on(2, 0) == 2 && go_on(5, room) == 4 && go_on(12, room) == 4,
           "where it divides and fits");
    cfg.train.micro_batch = 3;
    EXPECT(go_on(2, room) == 3, "what is set stays");
    refuse(6, plan("none", 6) - 1, {"train.micro_batch = 6 needs", "that fits is train.micro_batch = 4"});
    refuse(12, plan("none", 3), {"train.micro_batch = 12 needs", "that fits is train.micro_batch = 3"});
    refuse(12, plan("none", 1), {"that fits is train.micro_batch = 1"});
    refuse(12, plan("block", 1), {"memory.recompute=block", "train.micro_batch=1 does"});
    refuse(0, plan("block", 1) - 1, {"train.micro_batch = 1 needs", "No micro-batch fits", "smaller",
                                     "stop what else", "--plan"});
}

// Ranks that will be threads share this host's memory; processes may have a host each.
TEST(described_threads_share_memory) {
    Config cfg = plan_config("none");
    cfg.parallel.ranks = 4;
    const double all = double(available_memory_bytes());
    for (const char* transport : {"threads", "mpi"}) {
        cfg.parallel.transport = transport;
        const auto rank = described_mesh(cfg.parallel, 4, 0);
        const double one = double(available_to_rank(rank->mesh, cfg.memory));
        EXPECT_NEAR(one / all, *transport == 't' ? 0.25 : 1, 0.05);
    }
}

// Of a model with a norm of its embedding, trained by Muon.
TEST(a_plan_sums_memory_by_purpose) {
    Config cfg = plan_config("none");
    cfg.model.embed_norm = true, cfg.optimizer.kind = OptimizerKind::Muon;
    const Model model(cfg, Mesh(), B, false);
    auto plan = plan_of(model);
    const auto bytes_of = [&](std::initializer_list<const char*> rows) {
        size_t bytes = 0;
        for (const char* row : rows) bytes += plan[row];
        return bytes;
    };
    const BytesByPurpose m = memory_estimate(cfg, 1).memory;
    EXPECT(m.weights == bytes_of({"weights"}), "%zu bytes of weights", m.weights);
    EXPECT(m.gradients == bytes_of({"gradients", "gradient of wte as embedding"}), "%zu bytes of gradients",
           m.gradients);
    EXPECT(plan["norm of the embedding"] > 0 && plan["matrices of Muon"] > 0);
    const size_t state = bytes_of({"master weights", "first moments", "second moments", "matrices of Muon"});
    EXPECT(m.optimizer == state, "%zu bytes of the optimizer, of rows %zu", m.optimizer, state);
    const size_t activations = bytes_of({"activations", "norm of the embedding", "block scratch", "losses",
                                         "final norm", "logits of a chunk", "gradient of the stream",
                                         "tokens"});
    EXPECT(m.activations == activations, "%zu bytes of activations, of rows %zu", m.activations, activations);
    EXPECT(m.sum() == model.bytes(), "%zu bytes of %zu", m.sum(), model.bytes());
}

// A save reads offloaded state where it is, and needs a copy of the weights alone.
TEST(a_snapshot_beside_offloaded_state) {
    const Target gpu = {Target::Cuda, 1};
    const Described described(gpu);
    Config cfg = plan_config("none");
    cfg.model.vocab = Vp, cfg.checkpoint.every = 1, cfg.memory.offload = Offload::Optimizer;
    const auto bytes_of_snapshot = [&](bool async) {
        cfg.checkpoint.async = async;
        const Model model = make_model(cfg);
        size_t bytes = 0;
        for (const auto& row : model.host.plan())
            if (row.name == "snapshot for checkpoints") bytes += row.bytes;
        return double(bytes) / double(model.shards.layout.parameters);
    };
    EXPECT_NEAR(bytes_of_snapshot(true), double(x), 0.01);
    EXPECT_NEAR(bytes_of_snapshot(false), double(x), 0.01);
    cfg.memory.offload = Offload::None;
    const size_t state = (kIsBf16 ? 3 : 2) * r;         // master weights, and two moments
    EXPECT_NEAR(bytes_of_snapshot(true), double(x + state), 0.01);
}

// Two images of what a rank saves, and two of another rank's.
TEST(images_with_agents_are_planned) {
    Config cfg = plan_config("none");
    cfg.model.vocab = Vp;
    const size_t before = make_model(cfg).bytes();
    cfg.run.elastic = true;
    const Model model = make_model(cfg);
    EXPECT(model.bytes() - before == 4 * share_to_save(model.shards).bytes, "%zu bytes of %zu",
           model.bytes() - before, size_t(share_to_save(model.shards).bytes));
    EXPECT(has(plan_text(cfg, model), "images of the state"), "'%s'", plan_text(cfg, model).c_str());
}

// Regions follow each other at multiples of 64 bytes, inside the allocation.
TEST(pieces_do_not_overlap) {
    static size_t asked;
    static int freed;
    asked = 0, freed = 0;
    char* a; double* b; int* none; char *c, *d;
    {
        Arena arena;
        arena.add("first", &a, 1);
        arena.add("second", &b, 9);
        arena.add("empty", &none, 0);
        arena.add("first", &c, 65);
        arena.of(Purpose::Weights).add("first", &d, 1);
        arena.allocate(
            [](size_t bytes) {
                asked = bytes;
                return aligned_alloc(4096, bytes);
            },
            [](void* p, size_t) {
                freed++;
                free(p);
            });
        EXPECT(asked == arena.bytes() && asked == 4096, "%zu bytes are allocated, %zu planned", asked,
               arena.bytes());
        EXPECT(reinterpret_cast<char*>(b) - a == 64 && c - a == 64 + 128, "b at %td, c at %td",
               reinterpret_cast<char*>(b) - a, c - a);
        const auto plan = arena.plan();
        EXPECT(plan[0].name == "first" && plan[0].bytes == 64 + 128 && plan[1].bytes == 128,
               "%zu and %zu bytes", plan[0].bytes, plan[1].bytes);
        EXPECT(plan[3].name == "first" && plan[3].purpose == Purpose::Weights && plan[3].bytes == 64);
    }
    EXPECT(freed == 1, "freed %d times", freed);
}

}  // namespace PRECISION
