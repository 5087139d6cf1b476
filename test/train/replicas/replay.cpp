// A micro-batch computed again: equal bits on every mesh, no bit of the training changes, and a rank that
// computes something else is named.
#include "llmc/train/replicas/replay.h"

#include <cstring>

#include "llmc/base/guard/flip.h"
#include "llmc/comm/launch/launch.h"
#include "test/lattice_point.h"

namespace PRECISION {

struct Outcome {
    Trace trace;
    std::vector<real> weights;
    std::vector<std::string> found;         // "step 2: rank 1 gradient of block 3"
};

static std::string text_of(const Suspects& s, const Replay& r) {
    std::string ranks;
    for (const int rank : s.ranks) ranks += fmt::format(" {}", rank);
    return fmt::format("{} rank{}: {}", s.sure ? "sure" : "unsure", ranks, r.name_of(s));
}

// Steps that are replayed, all ranks in turn. replays: also sniffed before. flip: on `rank`, from step 1 on.
static Outcome train(const Point& p, bool replays, Flip flip = Flip::None, int rank = -1,
                     FlipPlace at = {}) {
    std::vector<Outcome> outcomes(size_t(p.ranks()));
    const auto body = [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        t.shake(0.1);
        Outcome& o = outcomes[size_t(mesh.rank)];
        Replay replay(t.model.pipeline);
        if (replays) replay.expect_twice(t.set, 0);
        if (replays) if (const Suspects s = replay.compare(); s.any()) o.found.push_back(text_of(s, replay));
        Loader data(t.set, t.model.pipeline.deal(mesh.dp.index), 0);
        for (int s = 0; s < kSteps; s++) {
            if (s > 0 && mesh.rank == rank) ask_flip(flip, at);
            if (replays) replay.expect(t.set, uint64_t(s * t.model.pipeline.batch_rows), s % mesh.dp.size);
            t.model.pipeline.run(data);
            if (replays)
                if (const Suspects x = replay.compare(); x.any())
                    o.found.push_back(fmt::format("{}: ", s) + text_of(x, replay));
            enqueue_update(t.model, kRate, s);
            const StepResult f = t.model.statistics->read();
            o.trace.losses.push_back(f.loss), o.trace.norms.push_back(f.norm);
        }
        for (const Tensor& tensor : whole_tensors(t.d))
            for (const real v : t.whole(tensor)) o.weights.push_back(v);
        return 0;
    };
    if (p.ranks() == 1) body(p.config(), Mesh());
    else run_threads(p.config(), body);
    for (const Outcome& o : outcomes) EXPECT(o.found == outcomes[0].found, "ranks disagree");
    return outcomes[0];
}

static const Point kMeshes[] = {
    {1, 1, 1, 0}, {3, 1, 1, 0}, {3, 1, 1, 1, "block"}, {2, 1, 1, 2}, {2, 1, 1, 3, "selective"},
    {.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2}, {1, 2, 1, 0}, {2, 2, 1, 3}, {1, 1, 2, 0},
    {2, 1, 2, 2}, {2, 2, 2, 3, "block"}, {2, 1, 2, 3, "none", 2}, {.dp = 2, .tp = 1, .pp = 2, .kind = 10},
    {.dp = 2, .tp = 1, .pp = 1, .zero = 1, .micro_batch = 6},
    {.dp = 2, .tp = 2, .pp = 1, .kind = 7, .muon = 1}, {.dp = 2, .tp = 1, .pp = 1, .zero = 2, .cp = 2}};

TEST(a_replay_has_the_same_bits_and_changes_none) {
    for (const Point& p : kMeshes) {
        const Outcome with = train(p, true), without = train(p, false);
        EXPECT(with.found.empty(), "%s: %s", p.text().c_str(), with.found.at(0).c_str());
        const size_t bytes = with.weights.size() * sizeof(real);
        EXPECT(with.trace.losses == without.trace.losses && with.trace.norms == without.trace.norms &&
                   memcmp(with.weights.data(), without.weights.data(), bytes) == 0,
               "%s: a replay changes bits", p.text().c_str());
    }
}

// Of a rank whose output of a block has another bit in each step: as soon as its turn comes.
TEST(a_rank_that_computes_something_else_is_named) {
    const Point p{3, 1, 1, 0};
    for (const int rank : {0, 1, 2}) {
        const Outcome o = train(p, true, Flip::Activations, rank, {2, 14 + 32 * kIsFp64});
        const int turn = rank == 0 ? 3 : rank;
        const std::string expected = fmt::format("{}: sure rank {}: ", turn, rank);
        EXPECT(!o.found.empty() && o.found[0].starts_with(expected), "rank %d: '%s'", rank,
               o.found.empty() ? "" : o.found[0].c_str());
    }
}

TEST(the_gradient_of_the_block_is_named) {
    for (const Point& p : {Point{1, 1, 1, 0}, {2, 1, 1, 2}, {2, 1, 1, 3}}) {
        // final group: 2 tensors; then blocks from the last on, of 12 tensors each
        const Outcome o = train(p, true, Flip::Gradients, 0, {2 + 12 + 5, 22});
        EXPECT(!o.found.empty() && o.found[0].ends_with("sure rank 0: gradient of block 5"), "%s: '%s'",
               p.text().c_str(), o.found.empty() ? "" : o.found[0].c_str());
    }
}

// Two replicas with other weights: a difference, and nobody knows whose are right.
TEST(two_replicas_with_other_weights_differ) {
    const Outcome o = train({2, 1, 1, 0}, true, Flip::Weights, 1, {4, 14 + 32 * kIsFp64});
    EXPECT(!o.found.empty(), "nothing is found");
    const Outcome three = train({3, 1, 1, 0}, true, Flip::Weights, 1, {4, 14 + 32 * kIsFp64});
    EXPECT(!three.found.empty() && three.found[0].find("sure rank 1:") != std::string::npos, "'%s'",
           three.found.empty() ? "" : three.found[0].c_str());
}

}  // namespace PRECISION
