// Evaluations, texts and scores of tasks: what is walked is what is then done, and what warm-ups know of.
#include <cstring>

#include "llmc/comm/launch/launch.h"
#include "llmc/train/run/generate.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/score/scores.h"
#include "test/bytes_tokenizer.h"
#include "test/lattice_point.h"
#include "test/walks.h"

namespace PRECISION {

static Config config_of(const Point& p) {
    Config cfg = p.config();
    cfg.model.vocab = 257, cfg.eval.tasks = {"some"};
    return cfg;
}

static const Point kPoints[] = {{.dp = 1, .tp = 1, .pp = 1},
                                {.dp = 2, .tp = 1, .pp = 1, .zero = 3},
                                {.dp = 1, .tp = 2, .pp = 2},
                                {.dp = 2, .tp = 1, .pp = 2, .zero = 3, .virtual_stages = 2},
                                {.dp = 1, .tp = 1, .pp = 3, .micro_batch = 2},
                                {.dp = 1, .tp = 2, .pp = 2, .virtual_stages = 2, .kind = 10},
                                {.dp = 2, .tp = 1, .pp = 1, .zero = 3, .kind = 7, .cp = 2}};

// Continuations of one context, and a longer sequence.
static std::vector<Request> some_requests() {
    std::vector<Request> requests;
    for (int32_t id = 0; id < 9; id++)
        requests.push_back({.document = 0, .tokens = {1, 2, 3, 4, 5, 6, 7, 8, id, id}, .scored = 1 + id % 2});
    requests.push_back({.document = 1, .tokens = test::random_ids(14, 257, 1), .scored = 13});
    return requests;
}

static void evaluate_and_write(Model& model, const Config& cfg, const Dataset& set) {
    const Mesh& mesh = model.mesh;
    EXPECT(model.pipeline.evaluate(set, 2, {}).has_value());
    Generator generator(cfg, mesh, *model.decoder, model.zero);
    TextState text{.ids = {1, 2, 3, 4, 5, 6, 7, 8}};
    for (int i = 0; i < 20; i++) EXPECT(generator.next(text, 0).has_value());   // past the context of 13
    const std::vector<Request> requests = some_requests();
    const PassLimits limits{40, 160};
    const auto passes = passes_of_rank(pass_groups(requests, limits), mesh.dp.index, mesh.dp.size);
    EXPECT(passes.size() > 1 && score_requests(requests, passes, *model.scorer, model.zero, mesh));
}

// The same calls on a rank that computes, and on one of a mesh that is only described.
TEST(evaluations_texts_and_scores_are_walked) {
    for (const Point& p : kPoints) {
        const Config cfg = config_of(p);
        const int ranks = cfg.parallel.ranks;
        run_threads(cfg, [&](Config c, const Mesh& mesh) {
            Tiny t(c, true, mesh);
            const auto work = [&](Model& model) { return [&] { evaluate_and_write(model, c, t.set); }; };
            const Walk done = walk_of(ops::target(), work(t.model), true);
            const auto described = described_mesh(c.parallel, ranks, mesh.rank);
            Model there(c, described->mesh, c.train.micro_batch, true);
            there.arena.describe(), there.host.describe();
            there.gpt.ready();
            const std::string where = fmt::format("{}, rank {}", p.text(), mesh.rank);
            expect_same(where, walk_of(ops::target(), work(there)), done);
            EXPECT(done.scratch_used <= there.scratch_bytes, "%s: %zu bytes of scratch", where.c_str(),
                   done.scratch_used);
            return 0;
        });
    }
}

// A signal to this rank does not end a walk: what is planned does not depend on signals.
TEST(a_walk_goes_through_to_its_end) {
    const auto described = described_mesh(config_of(kPoints[1]).parallel, 2, 0);
    for (const Axis& ranks : {Axis(), described->mesh.world}) {
        walk_of(ops::target(), [&] { EXPECT(!any_of(ranks, true)); });
        if (ranks.size == 1) EXPECT(any_of(ranks, true));
    }
}

// A product or an attention that was walked: of a text the walk has the longest cache of keys (Tk, offset).
static bool known_to(const Walk& walk, const Cost& cost) {
    return std::any_of(walk.costs.begin(), walk.costs.end(), [&](const Cost& c) {
        const AttentionShape &a = c.attention, &b = cost.attention;
        return !strcmp(c.name, cost.name) && c.product == cost.product && a.B == b.B && a.Tq == b.Tq &&
               a.Tk >= b.Tk && c.needs.scratch >= cost.needs.scratch;
    });
}

// An evaluation and a text on every rank of a mesh: libraries were warmed up for all that is computed, by few
// rounds of the evaluation.
static void expect_known(const Point& p) {
    Config cfg = config_of(p);
    cfg.sample.tokens = 20;
    const int ranks = cfg.parallel.ranks;
    const std::string prompt = "a prompt";
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, true, mesh);
        const Tokenizer tokenizer = bytes_tokenizer();
        Generator generator(c, mesh, *t.model.decoder, t.model.zero);
        const Walk done = walk_of(ops::target(), [&] {
            t.model.pipeline.evaluate(t.set, 0, {});
            generator.run(tokenizer, prompt_ids(tokenizer, prompt), 1);
        }, true);
        const auto described = described_mesh(c.parallel, ranks, mesh.rank);
        const Walk walk = walk_of_run(c, described->mesh,
                                      {.micro_batch = c.train.micro_batch, .micros = 0, .trains = false,
                                       .evaluated = t.model.pipeline.rows_of_evaluation(t.set, 0),
                                       .prompt = prompt_ids(tokenizer, prompt).size(), .generates = true});
        EXPECT(done.needs().scratch <= t.model.scratch_bytes, "%s", p.text().c_str());
        EXPECT(walk.entries.size() < done.entries.size(), "%zu entries walked, %zu done",
               walk.entries.size(), done.entries.size());
        for (const Walk::Entry& e : done.entries) {
            const Cost& cost = done.of(e);
            if (cost.kind != Kind::Product && cost.kind != Kind::Attention) continue;
            const bool known = known_to(walk, cost);
            EXPECT(known, "%s, rank %d: not walked: %s", p.text().c_str(), mesh.rank,
                   text_of(done, e).c_str());
            if (!known) break;
        }
        return 0;
    });
}

TEST(warm_ups_know_of_evaluations_and_texts) {
    for (const Point& p : kPoints) expect_known(p);
}

}  // namespace PRECISION
