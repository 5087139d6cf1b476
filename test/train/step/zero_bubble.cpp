// parallel.schedule = zb: backward in two halves has the bits of 1f1b, in the memory that the plan says.
#include "llmc/train/replicas/replay.h"
#include "test/lattice_run.h"

namespace PRECISION {

static Config with_halves(Config cfg, bool halves) {
    cfg.parallel.schedule = halves ? PipelineSchedule::ZeroBubble : PipelineSchedule::OneFOneB;
    return cfg;
}

// Losses, norms and weights of five steps, bit for bit.
static void expect_same_bits(Config cfg, const std::string& text) {
    TrainedPoint outcomes[2];
    for (const bool halves : {false, true})
        run_threads(with_halves(cfg, halves), [&](Config c, const Mesh& mesh) {
            return train_point(c, mesh, outcomes[halves]);
        });
    EXPECT(outcomes[0] == outcomes[1], "%s: other bits than 1f1b, weights %.2g apart", text.c_str(),
           test::largest_difference(outcomes[1].weights, outcomes[0].weights, kRate));
}

// 12 micro-batches on 2 and 4 stages, and fewer than stages.
TEST(halves_have_the_bits_of_1f1b) {
    for (const Point& p : {Point{1, 1, 4}, {2, 1, 2, 3}, {2, 2, 2, 2}})
        expect_same_bits(p.config(), p.text());
    for (const Point& p : {Point{.dp = 1, .tp = 1, .pp = 4, .micro_batch = 6},
                           {.dp = 1, .tp = 1, .pp = 2, .kind = 4, .cp = 2},
                           {.dp = 1, .tp = 1, .pp = 2, .zero = 2, .kind = 5, .cp = 2, .heads = true,
                            .documents = true},
                           {.dp = 2, .tp = 1, .pp = 2, .zero = 1, .overlap = false, .delay_us = 20}})
        expect_same_bits(p.config(), p.text());
}

// Biases, gains, gates, value embeddings, shortcuts: whole and cut, with gradients whole and in shards.
TEST(halves_of_every_kind_have_the_bits_of_1f1b) {
    for (const size_t kind : {5, 7, 8, 10, 11}) {
        Point p{2, kind == 10 ? 2 : 1, 2, kind == 8 ? 0 : 3};
        p.kind = kind, p.micro_batch = 2;
        expect_same_bits(p.config(), p.text());
    }
}

TEST(halves_have_the_bits_of_1f1b_in_fp8) {
    Point p{2, 1, 2, 3};
    Config cfg = p.config();
    cfg.model = {.layers = 4, .heads = 2, .channels = 48, .context = 16, .vocab = 67, .init = "random"};
    cfg.model.head_channels = 32;
    cfg.train.batch_tokens = kRows * 16;
    cfg.run.products = ProductKind::Fp8;
    expect_same_bits(cfg, "FP8, " + p.text());
}

static size_t planned_for(const Model& model, const std::string& begins) {
    size_t bytes = 0;
    for (const Arena::Row& row : model.arena.plan())
        if (row.name.starts_with(begins)) bytes += row.bytes;
    return bytes;
}

// Every stage has what the first of 1f1b has, and gradients of blocks' results. One scratch of all blocks has
// the gradient of an activation.
TEST(halves_take_the_memory_of_1f1b_and_gradients_of_streams) {
    for (const int tp : {1, 2}) {
        Config cfg = Point{1, tp, 4}.config();
        cfg.model.layers = 8;
        const auto planned = [&](bool halves, int stage, const char* rows) {
            const auto mesh = described_mesh(cfg.parallel, 4 * tp, stage * tp);
            const Model model(with_halves(cfg, halves), mesh->mesh, 1, false);
            return planned_for(model, rows);
        };
        const size_t rows = size_t(cfg.model.context + tp - 1) / size_t(tp) * size_t(cfg.model.channels);
        const size_t streams = 4 * 2 * rows * sizeof(floatX);       // of 4 micro-batches and 2 blocks
        const size_t dact = size_t(cfg.model.context) * 4 * size_t(cfg.model.channels) / size_t(tp);
        for (int stage = 0; stage < 4; stage++) {
            const size_t acts = planned(true, stage, "activations: "),
                         first = planned(false, 0, "activations: ");
            const size_t slack = 4 * 2 * 64 + 64 * 64;              // entries are aligned
            EXPECT(acts >= first && acts <= first + streams + slack, "tp %d, stage %d: %zu bytes, %zu on the "
                   "first of 1f1b", tp, stage, acts, first);
            const size_t scratch = planned(true, stage, "block scratch"),
                         before = planned(false, stage, "block scratch");
            EXPECT(scratch <= before + dact * sizeof(floatX) + 64, "tp %d, stage %d: %zu bytes of scratch, "
                   "%zu of 1f1b", tp, stage, scratch, before);
        }
    }
}

// A micro-batch that is computed again (run.replay_every) has the gradients of the step's.
TEST(a_rehearsal_of_halves_has_every_gradient) {
    for (const int zero : {0, 3}) {
        std::vector<real> seen[2];
        for (const bool halves : {false, true}) {
            Point p{2, 1, 2, zero};
            run_threads(with_halves(p.config(), halves), [&](Config c, const Mesh& mesh) {
                Tiny t(c, false, mesh);
                t.shake(0.1);
                const std::function<void(int, const real*)> reader = [&](int bucket, const real* whole) {
                    if (mesh.rank) return;
                    seen[halves].insert(seen[halves].end(), whole,
                                        whole + t.model.shards.layout.size(bucket));
                };
                t.model.zero.reader = &reader;
                t.model.pipeline.rehearse(t.set, 0, 0);
                t.model.zero.reader = nullptr;
                return 0;
            });
        }
        std::sort(seen[0].begin(), seen[0].end());          // the ends come in another order
        std::sort(seen[1].begin(), seen[1].end());
        EXPECT(!seen[0].empty() && seen[0] == seen[1], "zero %d: %zu and %zu gradients", zero,
               seen[0].size(), seen[1].size());
    }
}

}  // namespace PRECISION
