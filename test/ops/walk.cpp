// What is walked is what is then done: the same ops and collectives, in the same order, of the same bytes.
#include "llmc/comm/launch/launch.h"
#include "llmc/train/log/step_meter.h"
#include "test/lattice_point.h"
#include "test/shrunk.h"
#include "test/walks.h"

namespace PRECISION {

// A step of every rank of a mesh of threads, against the walk of that rank of a mesh that is only described.
static void expect_walked(const std::string& name, Config cfg) {
    cfg.checkpoint.every = 0;
    const int ranks = cfg.parallel.ranks;
    std::vector<std::optional<Walk>> done(static_cast<size_t>(ranks));
    std::vector<std::map<std::string, uint64_t>> moved(static_cast<size_t>(ranks));
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        for (int a = 0; a < kGroups; a++)
            if (Group* g = (mesh.*group_rows[a].axis).group) std::fill_n(g->moved, kVerbs, Moved());
        Loader data(t.set, t.model.pipeline.deal(mesh.dp.index), 0);
        done[size_t(mesh.rank)] = walk_of(ops::target(), [&] {
            t.model.pipeline.run(data);
            enqueue_update(t.model, 1e-3, 0);
        }, true);
        moved[size_t(mesh.rank)] = sent(mesh);
        t.model.statistics->read();
        return 0;
    });
    set_threads(1);
    for (int r = 0; r < ranks; r++) {
        const std::string where = fmt::format("{}, rank {}", name, r);
        const int micro_batch = cfg.train.micro_batch;
        const auto described = described_mesh(cfg.parallel, ranks, r);
        const Walk walk = walk_of_run(cfg, described->mesh, {.micro_batch = micro_batch, .micros = 0});
        expect_same(where, walk, *done[size_t(r)]);
        EXPECT(sent(walk) == moved[size_t(r)], "%s: bytes sent differ", where.c_str());
        const Model model(cfg, described->mesh, micro_batch, false);
        const size_t planned = std::max(walk.needs().scratch, needs::any_rows(ops::target()).scratch);
        EXPECT(model.scratch_bytes == planned, "%s: %zu bytes of scratch planned, %zu walked", where.c_str(),
               model.scratch_bytes, walk.needs().scratch);
        const size_t used = done[size_t(r)]->scratch_used;
        EXPECT(used == walk.needs().scratch, "%s: %zu bytes of scratch used, %zu walked", where.c_str(), used,
               walk.needs().scratch);
    }
}

TEST(what_is_walked_is_done_on_every_mesh) {
    for (const Point& p : {Point{.dp = 2, .tp = 1, .pp = 1}, Point{.dp = 2, .tp = 1, .pp = 1, .zero = 1},
                           Point{.dp = 2, .tp = 1, .pp = 1, .zero = 2, .recompute = "selective"},
                           Point{.dp = 2, .tp = 1, .pp = 2, .zero = 3},
                           Point{.dp = 4, .tp = 1, .pp = 1, .zero = 3, .recompute = "block", .zero_group = 2},
                           Point{.dp = 1, .tp = 2, .pp = 1},
                           Point{.dp = 1, .tp = 4, .pp = 1, .recompute = "block"},
                           Point{.dp = 2, .tp = 2, .pp = 1, .zero = 2, .micro_batch = 3},
                           Point{.dp = 1, .tp = 2, .pp = 2, .recompute = "selective"},
                           Point{.dp = 1, .tp = 1, .pp = 2, .virtual_stages = 2},
                           Point{.dp = 1, .tp = 1, .pp = 3, .recompute = "block"},
                           Point{.dp = 2, .tp = 1, .pp = 1, .zero = 3, .recompute = "selective", .kind = 1},
                           Point{.dp = 1, .tp = 2, .pp = 2, .kind = 6},
                           Point{.dp = 2, .tp = 1, .pp = 2, .recompute = "block", .kind = 7},
                           Point{.dp = 1, .tp = 2, .pp = 2, .recompute = "selective", .virtual_stages = 2,
                                 .kind = 10},
                           Point{.dp = 2, .tp = 1, .pp = 2, .zero = 3, .recompute = "block", .kind = 10},
                           Point{.dp = 2, .tp = 2, .pp = 1, .zero = 2, .kind = 8, .muon = 1},
                           Point{.dp = 2, .tp = 2, .pp = 2, .zero = 3, .order = "pp,dp,tp"},
                           Point{.dp = 1, .tp = 2, .pp = 1, .zero = 3, .kind = 7, .cp = 2},
                           Point{.dp = 1, .tp = 1, .pp = 2, .recompute = "block", .cp = 2, .heads = true,
                                 .documents = true},
                           Point{.dp = 2, .tp = 1, .pp = 1, .native = 1},
                           Point{.dp = 2, .tp = 1, .pp = 1, .bf16_wire = true},
                           Point{.dp = 2, .tp = 1, .pp = 2, .native = 1, .bf16_wire = true},
                           Point{.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2, .native = 1}})
        expect_walked(p.text(), p.config());
}

// Each preset on one of three meshes and in one precision; LATTICE=all: on each, in each.
TEST(every_preset_does_what_is_walked) {
    struct On { int tp, pp, zero; const char* recompute; };
    const On meshes[] = {{2, 1, 0, "selective"}, {1, 2, 1, "none"}, {2, 1, 3, "block"}};
    const std::vector<std::string> presets = preset_paths();
    const size_t precision = kIsFp64 ? 2 : kIsBf16 ? 1 : 0;
    const bool all = walks_all();
    for (size_t i = 0; i < presets.size() * std::size(meshes); i++) {
        const size_t preset = i / std::size(meshes), mesh = i % std::size(meshes);
        if (!all && (preset % 3 != precision || mesh != preset / 3 % std::size(meshes))) continue;
        const std::string& name = presets[preset];
        Config cfg = shrunk(name);
        On on = meshes[mesh];
        if (cfg.model.heads % on.tp) on.tp = 1;                 // the 25 heads of gpt2_1558M
        cfg.parallel.ranks = 4, cfg.parallel.tp = on.tp, cfg.parallel.pp = on.pp;
        cfg.parallel.zero = on.zero, cfg.memory.recompute = on.recompute;
        expect_walked(fmt::format("{}, tp {}, pp {}, ZeRO {}", name, on.tp, on.pp, on.zero), cfg);
    }
    EXPECT(presets.size() == 24, "%zu presets", presets.size());
}

// mfu goes by 6N + 6LCT. A walk counts products and attention alone, with padded vocabularies and the scores
// that the backward pass computes again.
TEST(mfu_counts_the_flops_that_are_walked) {
    std::vector<Config> configs;
    for (const char* preset : {"gpt2_124M", "gpt2_1558M", "gpt3_13B"})
        configs.push_back(load_config(fmt::format("scripts/{}.json", preset)));
    Config own_head = configs[0];
    own_head.model.tied = false, own_head.model.head_channels = 128, own_head.model.kv_heads = 4;
    configs.push_back(own_head);
    for (const Config& cfg : configs) {
        const Walk walk = walk_of_run(cfg, Mesh(), {.micro_batch = 1, .micros = 1});
        int64_t parameters = 0;
        for (const Tensor& t : whole_tensors(dims_of(cfg, cfg.model.vocab)))
            parameters += int64_t(t.param.whole());
        const double formula = cfg.model.context * model_flops_per_token(cfg.model, parameters);
        EXPECT_NEAR(walk.flops() / formula, 1, 0.03);
    }
}

TEST(mfu_counts_windows_where_they_are_smaller) {
    ModelConfig m = {.layers = 5, .heads = 3, .channels = 48, .context = 37, .vocab = 66};
    const double all = model_flops_per_token(m, 1000);
    m.window = {8, 0, 100};
    EXPECT_NEAR(all - model_flops_per_token(m, 1000), 6 * 48 * 2 * (37 - 8), 1e-9);      // layers 0 and 3
}

TEST(mfu_leaves_tables_out_that_are_looked_up) {
    ModelConfig m = {.layers = 5, .heads = 4, .channels = 48, .context = 37, .vocab = 66, .kv_heads = 2};
    const double tied = model_flops_per_token(m, 100000);
    m.value_embeddings = ValueEmbeddings::Alternate;
    EXPECT_NEAR(tied - model_flops_per_token(m, 100000), 6. * 3 * 66 * 24, 1e-6);       // layers 0, 2, 4
    m.tied = false;
    EXPECT_NEAR(tied - model_flops_per_token(m, 100000), 6. * (3 * 66 * 24 + 66 * 48), 1e-6);
}

TEST(what_is_walked_is_done_on_one_rank) {
    for (const char* recompute : {"none", "selective", "block"})
        for (const char* offload : {"none", "optimizer"}) {
            Config cfg = lattice_config();
            cfg.memory.recompute = recompute, cfg.memory.offload = offload;
            Tiny t(cfg);
            Loader data(t.set, 1, 0);
            const Walk done = walk_of(ops::target(), [&] {
                t.model.pipeline.run(data);
                enqueue_update(t.model, 1e-3, 0);
            }, true);
            const std::string where = fmt::format("recompute {}, offload {}", recompute, offload);
            expect_same(where, walk_of_run(cfg, Mesh(), {.micro_batch = 1, .micros = 0}), done);
        }
}

// Matrices of Muon's next round are on their way while this round's are orthogonalized.
TEST(rounds_of_muon_overlap_with_products) {
    const auto sent_before_products = [](bool overlap) {
        Point p{.dp = 2, .tp = 1, .pp = 1, .zero = 2, .overlap = overlap, .muon = 1};
        const auto described = described_mesh(p.config().parallel, 2, 0);
        const Walk walk = walk_of_run(p.config(), described->mesh, {.micro_batch = 1, .micros = 0});
        int sent = 0;
        for (const Walk::Entry& e : walk.entries) {
            const Cost& c = walk.of(e);
            sent += std::string_view(c.name) == "all_to_all";
            if (sent && c.kind == Kind::Product) break;
        }
        return sent;
    };
    const int overlapped = sent_before_products(true), plain = sent_before_products(false);
    EXPECT(overlapped > plain && plain > 0, "%d and %d exchanges before a product", overlapped, plain);
}

TEST(statistics_of_tensors_are_walked) {
    for (const Point& p : {Point{.dp = 2, .tp = 1, .pp = 2, .zero = 3}, Point{.dp = 2, .tp = 2, .pp = 1}}) {
        Config cfg = p.config();
        cfg.log.health = 1;
        expect_walked("health, " + p.text(), cfg);
    }
    for (const bool muon : {false, true}) {
        Config cfg = lattice_config();
        cfg.log.health = 1;
        if (muon) cfg.optimizer.kind = OptimizerKind::Muon;
        Tiny t(cfg);
        Loader data(t.set, 1, 0);
        const Walk done = walk_of(ops::target(), [&] {
            t.model.health->begin(1);
            t.model.pipeline.run(data);
            enqueue_update(t.model, 1e-3, 0);
        }, true);
        const WalkedRun measured{.micro_batch = 1, .micros = 0, .health = true};
        expect_same("a step that measures", walk_of_run(cfg, Mesh(), measured), done);
    }
}

}  // namespace PRECISION
