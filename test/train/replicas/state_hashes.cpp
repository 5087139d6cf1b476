// Copies of weights and state on every mesh: all agree while training, and a flipped bit is found, at its
// rank where there are three copies.
#include "llmc/train/replicas/state_hashes.h"

#include "llmc/base/guard/flip.h"
#include "llmc/comm/launch/launch.h"
#include "test/lattice_point.h"

namespace PRECISION {

static Suspects compare_copies(const Tiny& t) {
    const Axis& world = t.model.mesh.world;
    const std::vector<CopyHash> mine = hashes_of_state(t.model.shards);
    std::vector<CopyHash> all(size_t(world.size) * mine.size());
    world.all_gather(&all[0].group, &mine[0].group, 2 * mine.size());
    return ::replicas::compare(all, mine.size());
}

// Before each update and at the end, as a run compares. flipped: the rank, before its third step; -1: none.
struct Found { int64_t step = -1; Suspects suspects = {}; std::string what = {}; };

static Found train_and_compare(const Point& p, Flip flip = Flip::None, int flipped = -1,
                               FlipPlace at = {}) {
    std::vector<Found> found(size_t(p.ranks()));
    run_threads(p.config(), [&](Config c, const Mesh& mesh) {
        Tiny t(c, false, mesh);
        t.shake(0.1);
        Loader data(t.set, t.model.pipeline.deal(mesh.dp.index), 0);
        Found& own = found[size_t(mesh.rank)];
        for (int s = 0; s <= kSteps && own.step < 0; s++) {
            if (s == 2 && mesh.rank == flipped) ask_flip(flip, at);
            if (s < kSteps) t.model.pipeline.run(data);
            if (const Suspects suspects = compare_copies(t); suspects.any())
                own = {s, suspects, name_of_copies(t.model.shards, suspects.kind)};
            if (s == kSteps || own.step >= 0) break;
            enqueue_update(t.model, kRate, s);
            t.model.statistics->read();
        }
        EXPECT(mesh.rank != flipped || own.step >= 0 || flip_asked == Flip::None, "nothing is flipped");
        return 0;
    });
    for (const Found& f : found)
        EXPECT(f.step == found[0].step && f.suspects.ranks == found[0].suspects.ranks, "ranks disagree");
    return found[0];
}

static const Point kMeshes[] = {
    {3, 1, 1, 0}, {3, 1, 1, 1}, {3, 1, 1, 2}, {2, 1, 1, 3},
    {.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2},
    {1, 2, 1, 0}, {2, 2, 1, 1}, {2, 2, 1, 3}, {1, 1, 2, 0}, {2, 1, 2, 1}, {2, 2, 2, 0},
    {.dp = 2, .tp = 1, .pp = 1, .zero = 1, .offload = 1}, {.dp = 2, .tp = 2, .pp = 1, .zero = 1, .muon = 1},
    {.dp = 2, .tp = 2, .pp = 2, .zero = 0, .kind = 10}, {.dp = 3, .tp = 1, .pp = 1, .zero = 0, .native = 1},
    {.dp = 3, .tp = 1, .pp = 1, .zero = 1, .kind = 7, .muon = 2},
    {.dp = 1, .tp = 2, .pp = 1, .zero = 1, .cp = 2},
    {.dp = 2, .tp = 2, .pp = 1, .zero = 1, .muon = 1, .rounded = kMostRounded}};

TEST(no_mesh_raises_a_false_alarm) {
    for (const Point& p : kMeshes) {
        const Found f = train_and_compare(p);
        EXPECT(f.step < 0, "%s: rank %d in step %d: %s", p.text().c_str(), f.suspects.ranks.at(0),
               int(f.step), f.what.c_str());
    }
}

// Every third bit place of weights and moments: the rank with the flip, in its step.
TEST(a_flip_is_found_in_its_step_at_its_rank) {
    for (const Flip flip : {Flip::Weights, Flip::Moments})
        for (uint64_t place = 0; place < 12; place++) {
            const Found f = train_and_compare({3, 1, 1, 0}, flip, int(place % 3), {place, 1 + 37 * place});
            EXPECT(f.step == 2 && f.suspects.sure && f.suspects.ranks == std::vector{int(place % 3)},
                   "place %d: step %d, %zu ranks", int(place), int(f.step), f.suspects.ranks.size());
            const bool weights = f.what == "weights" || f.what == "master weights";
            EXPECT(weights == (flip == Flip::Weights), "'%s'", f.what.c_str());
        }
}

TEST(two_copies_detect_a_flip) {
    const Found f = train_and_compare({2, 1, 1, 0}, Flip::Weights, 1, {3, 5});
    const bool both = !f.suspects.sure && f.suspects.ranks == std::vector{0, 1};
    EXPECT(f.step == 2 && both, "step %d", int(f.step));
}

// Weights are whole on each rank of dp at ZeRO 1 and 2, whatever is sharded. What tp leaves whole has copies
// over tp, here four; both ends of a pipeline have a tied wte.
TEST(copies_follow_from_the_mesh) {
    const struct { Point p; int rank; uint64_t place; std::vector<int> named; } cases[] = {
        {{3, 1, 1, 1}, 2, 9, {2}}, {{3, 1, 1, 2}, 0, 4, {0}},
        {{.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2}, 3, 0, {1, 3}},
        {{1, 2, 1, 0}, 1, 1, {0, 1}},                   // wpe
        {{2, 2, 1, 0}, 3, 1, {3}},                      // wpe: four copies
        {{2, 2, 1, 0}, 2, 0, {0, 2}},                   // wte: two copies of the rows
        {{1, 1, 2, 0}, 1, 0, {0, 1}},                   // a tied wte, on the last stage
        {{2, 1, 2, 0}, 2, 0, {2}},                      // four copies
        {{.dp = 1, .tp = 1, .pp = 1, .cp = 3}, 1, 4, {1}}};
    for (const auto& c : cases) {
        const Found f = train_and_compare(c.p, Flip::Weights, c.rank, {c.place, 3});
        EXPECT(f.step == 2 && f.suspects.ranks == c.named, "%s: place %d %s: step %d, %zu ranks, first %d",
               c.p.text().c_str(), int(c.place), f.what.c_str(), int(f.step), f.suspects.ranks.size(),
               f.suspects.any() ? f.suspects.ranks[0] : -1);
    }
}

// A gather that brings one rank other gradients: its update differs from the others'.
TEST(a_message_with_another_bit_is_found) {
    int found = 0;
    for (uint64_t place = 0; place < 20; place++) {
        const Found f = train_and_compare({3, 1, 1, 0}, Flip::Message, 1, {place, 30});
        if (f.step < 0) continue;
        found++;
        EXPECT(f.step <= 3 && f.suspects.ranks == std::vector{1}, "place %d: step %d, rank %d", int(place),
               int(f.step), f.suspects.ranks[0]);
    }
    EXPECT(found >= 5, "%d of 20 flips are found", found);
}

}  // namespace PRECISION
