// Scores of requests against the whole forward of training, one sequence at a time, and on every mesh.
#include "llmc/comm/launch/launch.h"
#include "llmc/train/score/scores.h"
#include "test/lattice_point.h"

namespace PRECISION {

static constexpr double kAllowed = kIsFp64 ? 1e-10 : kIsBf16 ? 0.15 : 2e-4;

// Documents of a few requests that share a beginning; the last documents share nothing.
static std::vector<Request> some_requests(int context, int vocab) {
    std::vector<Request> all;
    uint64_t at = 0;
    const auto draw = [&](int n) { return int(philox(5, 1, at++).x[0] % uint32_t(n)); };
    for (int d = 0; d < 25; d++) {
        std::vector<int32_t> begin;
        for (int i = d < 20 ? draw(context - 7) : 0; i >= 0; i--) begin.push_back(draw(vocab));
        for (int c = 1 + draw(4); c > 0; c--) {
            Request r{.document = d, .tokens = begin, .scored = 1 + draw(6)};
            for (int i = r.scored; i > 0; i--) r.tokens.push_back(draw(vocab));
            all.push_back(r);
        }
    }
    return all;
}

static double capped(double l, const ModelKind& kind) {
    const double c = kind.softcap;
    if (c == 0) return l;
    return kind.softcap_kind == SoftcapKind::Tanh ? c * std::tanh(l / c) : c * l / std::hypot(l, c);
}

// By the logits of training's forward, in double precision.
static Score score_alone(Tiny& t, const Request& r) {
    Gpt& gpt = t.model.gpt;
    const int T = int(r.tokens.size()) - 1;
    gpt.forward(t.model.zero, {.tokens = r.tokens.data(), .targets = nullptr, .B = 1, .T = T});
    const HeadTensors<floatX> w = t.model.zero.head();
    ops::matmul_forward(gpt.logits, gpt.head[0].lnf, w.w, w.b, T, t.d.C, t.d.Vp);
    Score s{0, r.scored, true};
    for (int i = T - r.scored; i < T; i++) {
        const floatX* row = gpt.logits + size_t(i) * size_t(t.d.Vp);
        const int32_t target = r.tokens[size_t(i) + 1];
        double sum = 0;
        int best = 0;
        for (int v = 0; v < t.d.V; v++) {
            sum += std::exp(capped(double(row[v]), t.d.kind));
            if (double(row[v]) > double(row[best])) best = v;
        }
        s.logprob += capped(double(row[target]), t.d.kind) - std::log(sum);
        s.greedy &= best == target;
    }
    return s;
}

static std::vector<Score> scores_of(Tiny& t, std::span<const Request> requests, const PassLimits& limits,
                                    bool share) {
    const Mesh& mesh = t.model.mesh;
    const std::vector<ScorePass> passes =
        passes_of_rank(pass_groups(requests, limits, share), mesh.dp.index, mesh.dp.size);
    return *score_requests(requests, passes, *t.model.scorer, t.model.zero, mesh);
}

// fp64: greedy answers are equal as well. Greedy answers need likely targets: the model's own.
static void expect_equal(const std::vector<Score>& scores, const std::vector<Score>& expected,
                         const char* what) {
    double worst = 0;
    int greedy = 0;
    for (size_t i = 0; i < scores.size(); i++) {
        worst = test::larger_difference(worst, std::abs(scores[i].logprob - expected[i].logprob));
        greedy += kIsFp64 && scores[i].greedy != expected[i].greedy;
    }
    EXPECT(scores.size() == expected.size() && worst <= kAllowed && greedy == 0,
           "%s: %.3g apart, %d of %zu answers differ", what, worst, greedy, scores.size());
}

static Config with_tasks(Config cfg) {
    cfg.eval.tasks = {"some"};
    return cfg;
}

TEST(scores_are_those_of_each_sequence_alone) {
    for (size_t kind = 0; kind < std::size(kKinds); kind++) {
        Config cfg = with_tasks(tiny_config());
        cfg.model = of_kind(kKinds[kind], cfg.model);
        cfg.train.micro_batch = 1, cfg.train.batch_tokens = 37;
        Tiny t(cfg);
        t.shake();
        std::vector<Request> requests = some_requests(37, t.d.V);
        std::vector<Score> expected;
        for (Request& r : requests) expected.push_back(score_alone(t, r));
        const int rows = t.model.scorer->own.rows;
        EXPECT(rows == 2048, "%d rows", rows);
        for (const PassLimits limits : {PassLimits{rows, 4 * rows}, {rows, 4 * rows, 16},
                                        {40, 160}, {40, 75}})
            for (const bool share : {true, false})
                expect_equal(scores_of(t, requests, limits, share), expected, share ? "shared" : "apart");
    }
}

// A prefix leaves keys and values: of the last block one product, of the blocks before it four.
TEST_IF(kIsFp64, prefixes_compute_no_output) {
    Tiny t(with_tasks(tiny_config()));
    ScorePass prefix = {.segments = {{.B = 2, .T = 8}}, .is_prefix = true,
                        .tokens = std::vector<int32_t>(16, 1), .from = {0, 0}};
    t.model.zero.begin_step(blocks_of(t.model.scorer->own.part));
    const Walk walk = walk_of(ops::target(), [&] { t.model.scorer->forward(t.model.zero, prefix); });
    const auto of = [&](Kind kind) {
        return std::count_if(walk.entries.begin(), walk.entries.end(),
                             [&](const Walk::Entry& e) { return walk.of(e).kind == kind; });
    };
    const auto layers = t.cfg.model.layers;
    EXPECT(of(Kind::Product) == 4 * (layers - 1) + 1 && of(Kind::Attention) == layers - 1,
           "%lld products and %lld attentions in %lld layers", (long long)of(Kind::Product),
           (long long)of(Kind::Attention), (long long)layers);
}

// Every id as the continuation of a context: only the likeliest id is greedy.
TEST_IF(kIsFp64, likely_tokens_are_known) {
    Tiny t(with_tasks(tiny_config()));
    t.shake();
    std::vector<Request> requests;
    std::vector<Score> expected;
    for (int d = 0; d < 20; d++)
        for (int32_t v = 0; v < t.d.V; v++) {
            requests.push_back({d, {d, 3 * d % 66, v}, 1});
            expected.push_back(score_alone(t, requests.back()));
        }
    const std::vector<Score> scores = scores_of(t, requests, {2048, 8192}, true);
    expect_equal(scores, expected, "every token");
    const auto greedy = std::count_if(scores.begin(), scores.end(), [](const Score& s) { return s.greedy; });
    EXPECT(greedy == 20, "%d greedy tokens after 20 contexts", int(greedy));
}

// As the last rank has them.
static std::vector<Score> scores_on(const Point& p) {
    std::vector<Score> scores;
    const auto body = [&](const Config& cfg, const Mesh& mesh) {
        Tiny t(cfg, false, mesh);
        t.shake();
        const std::vector<Score> all = scores_of(t, some_requests(13, 67), {40, 160}, true);
        if (mesh.rank == mesh.world.size - 1) scores = all;
        return 0;
    };
    const Config cfg = with_tasks(p.config());
    if (cfg.parallel.ranks == 1) body(cfg, Mesh());
    else run_threads(cfg, [&](Config c, const Mesh& mesh) { return body(c, mesh); });
    return scores;
}

TEST_IF(kIsFp64, every_mesh_has_the_same_scores) {
    for (const size_t kind : {0, 7, 8}) {
        const std::vector<Score> expected = scores_on({.dp = 1, .tp = 1, .pp = 1, .kind = kind});
        for (Point p : {Point{2, 1, 1, 3}, {3, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2},
                        {2, 1, 2, 1, "none", 2}, {2, 2, 2, 3}}) {
            p.kind = kind;
            expect_equal(scores_on(p), expected, p.text().c_str());
        }
    }
}

// Each rank of cp computes all tokens of a pass.
TEST_IF(kIsFp64, ranks_that_share_rows_have_the_same_scores) {
    const auto expected = scores_on({.dp = 1, .tp = 1, .pp = 1, .kind = 7, .divided = true});
    for (const Point& p : {Point{.dp = 1, .tp = 1, .pp = 1, .zero = 3, .kind = 7, .cp = 2},
                           Point{.dp = 2, .tp = 2, .pp = 1, .kind = 7, .cp = 2, .heads = true}})
        expect_equal(scores_on(p), expected, p.text().c_str());
}

// Only tp adds in another order: without it, lower precisions have the bits of one rank.
TEST_IF(!kIsFp64, meshes_without_tp_have_the_bits_of_one_rank) {
    for (const size_t kind : {0, 7, 8}) {
        const std::vector<Score> expected = scores_on({.dp = 1, .tp = 1, .pp = 1, .kind = kind});
        for (Point p : {Point{2, 1, 1, 3}, {3, 1, 1}, {1, 1, 2}, {2, 1, 2, 1, "none", 2}}) {
            p.kind = kind;
            const std::vector<Score> scores = scores_on(p);
            size_t equal = 0;
            for (size_t i = 0; i < std::min(scores.size(), expected.size()); i++)
                equal += scores[i].logprob == expected[i].logprob && scores[i].greedy == expected[i].greedy;
            EXPECT(equal == expected.size() && scores.size() == equal, "%s: %zu of %zu scores are equal",
                   p.text().c_str(), equal, expected.size());
        }
        const std::vector<Score> cut = scores_on({.dp = 1, .tp = 2, .pp = 1, .kind = kind});
        expect_equal(cut, expected, "tp 2");
    }
}

}  // namespace PRECISION
