// What is walked is what is then done: the same ops and collectives, in the same order, of the same bytes.
#include <map>

#include "llmc/comm/transport/launch.h"
#include "llmc/train/run/generate.h"
#include "test/bytes_tokenizer.h"
#include "test/lattice_point.h"

namespace PRECISION {

static std::string text_of(const Walk& w, const Walk::Entry& e) {
    const Cost& c = w.of(e);
    std::string dims;
    for (const int d : c.dims) dims += strf(" %d", d);
    return strf("%s%s%s, block %d, micro-batch %d, dims%s, %g FLOPs, %llu bytes read, %llu written, %zu of "
                "scratch, peer %d", c.axis ? c.axis : "", c.axis ? "." : "", c.name, e.block, e.micro,
                dims.c_str(), c.flops, (unsigned long long)c.read, (unsigned long long)c.written,
                c.needs.scratch, c.peer);
}

static void expect_same(const std::string& where, const Walk& walked, const Walk& done) {
    EXPECT(walked.entries.size() == done.entries.size(), "%s: %zu entries walked, %zu done", where.c_str(),
           walked.entries.size(), done.entries.size());
    const size_t n = std::min(walked.entries.size(), done.entries.size());
    for (size_t i = 0; i < n; i++) {
        const std::string a = text_of(walked, walked.entries[i]), b = text_of(done, done.entries[i]);
        if (a == b) continue;
        EXPECT(a == b, "%s: entry %zu: walked %s; done %s", where.c_str(), i, a.c_str(), b.c_str());
        return;
    }
    EXPECT(walked.flops() == done.flops() && done.flops() > 0, "%s: %g FLOPs walked, %g done", where.c_str(),
           walked.flops(), done.flops());
}

// "dp.all_gather" -> bytes sent
static std::map<std::string, uint64_t> sent(const Walk& w) {
    std::map<std::string, uint64_t> bytes;
    for (const Walk::Entry& e : w.entries)
        if (const Cost& c = w.of(e); c.axis) bytes[std::string(c.axis) + "." + c.name] += c.read;
    return bytes;
}
static std::map<std::string, uint64_t> sent(const Mesh& mesh) {
    std::map<std::string, uint64_t> bytes;
    for (int a = 0; a < kAxes; a++)
        for (int v = 0; v < kVerbs; v++)
            if (const Group* g = (mesh.*mesh_axes[a]).group; g && g->moved[v].calls)
                bytes[std::string(axis_names[a]) + "." + verb_names[v]] = g->moved[v].bytes;
    return bytes;
}

// A step of every rank of a mesh of threads, against the walk of that rank of a mesh that is only described.
static void expect_walked(const Point& p) {
    Config cfg = p.config();
    cfg.checkpoint.every = 0;
    const int ranks = cfg.parallel.ranks;
    std::vector<std::optional<Walk>> done(static_cast<size_t>(ranks));
    std::vector<std::map<std::string, uint64_t>> moved(static_cast<size_t>(ranks));
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        for (int a = 0; a < kAxes; a++)
            if (Group* g = (mesh.*mesh_axes[a]).group) std::fill_n(g->moved, kVerbs, Moved());
        Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
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
        const std::string where = strf("%s, rank %d", p.text().c_str(), r);
        const auto described = described_mesh(cfg.parallel, ranks, r);
        const Walk walk = walk_of_run(cfg, described->mesh, {.micro_batch = p.micro_batch, .micros = 0});
        expect_same(where, walk, *done[size_t(r)]);
        EXPECT(sent(walk) == moved[size_t(r)], "%s: bytes sent differ", where.c_str());
        const Model model(cfg, described->mesh, p.micro_batch, false);
        EXPECT(model.scratch_bytes == walk.needs().scratch, "%s: %zu bytes of scratch planned, %zu walked",
               where.c_str(), model.scratch_bytes, walk.needs().scratch);
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
                           Point{.dp = 1, .tp = 1, .pp = 3, .recompute = "block"}})
        expect_walked(p);
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
            const std::string where = strf("recompute %s, offload %s", recompute, offload);
            expect_same(where, walk_of_run(cfg, Mesh(), {.micro_batch = 1, .micros = 0}), done);
        }
}

// A product or an attention that was walked: of a text the walk has the longest cache of keys (Tk, offset).
static bool known_to(const Walk& walk, const Cost& cost) {
    return std::any_of(walk.costs.begin(), walk.costs.end(), [&](const Cost& c) {
        const size_t same = cost.kind == Kind::Attention ? 2 : std::size(c.dims);
        return !strcmp(c.name, cost.name) && std::equal(c.dims, c.dims + same, cost.dims) &&
               c.dims[2] >= cost.dims[2] && c.needs.scratch >= cost.needs.scratch;
    });
}

// An evaluation and a text on every rank of a mesh: libraries were warmed up for all that is computed.
static void expect_known(const Point& p) {
    Config cfg = p.config();
    cfg.model.vocab = 257, cfg.sample.tokens = 20;          // past the context of 13: the window moves on
    const int ranks = cfg.parallel.ranks;
    const std::string prompt = "a prompt";
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        Tiny t(c, true, mesh);
        const Tokenizer tokenizer = bytes_tokenizer();
        Generator generator(c, mesh, *t.model.decoder, t.model.zero, tokenizer);
        const uint64_t rows = t.model.pipeline.rows_of_evaluation(t.set, 2);
        const Walk done = walk_of(ops::target(), [&] {
            t.model.pipeline.evaluate(t.set, 2, {});
            generator.run(prompt, 1);
        }, true);
        const auto described = described_mesh(c.parallel, ranks, mesh.rank);
        const Walk walk = walk_of_run(c, described->mesh,
                                      {.micro_batch = c.train.micro_batch, .micros = 0, .trains = false,
                                       .evaluated = rows, .prompt = prompt_ids(tokenizer, prompt).size(),
                                       .generates = true});
        EXPECT(done.needs().scratch <= t.model.scratch_bytes, "%s", p.text().c_str());
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

TEST(evaluations_and_texts_were_walked) {
    for (const Point& p : {Point{.dp = 1, .tp = 1, .pp = 1}, Point{.dp = 2, .tp = 1, .pp = 1, .zero = 3},
                           Point{.dp = 1, .tp = 2, .pp = 2},
                           Point{.dp = 2, .tp = 1, .pp = 2, .zero = 3, .virtual_stages = 2},
                           Point{.dp = 1, .tp = 1, .pp = 3, .micro_batch = 2}})
        expect_known(p);
}

}  // namespace PRECISION
