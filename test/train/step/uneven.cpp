// Ranks that do not divide a step's micro-batches (run.elastic, when a job has shrunk): each step has the
// samples, the loss and the norm of a single rank, whichever ranks compute it.
#include "test/lattice_run.h"
#include "test/shards.h"

namespace PRECISION {

static Point uneven(Point p, int B) {
    p.micro_batch = B;
    p.elastic = true;
    return p;
}

// 12 rows a step: in micro-batches of 1 to 12 rows over 2 to 8 ranks, up to 7 ranks have none in a round.
TEST_IF(kIsFp64, unequal_shares_train_as_one_rank) {
    const TrainedPoint one_rank = trained({1, 1, 1});
    const std::vector<Point> points = {
        uneven({5, 1, 1}, 1), uneven({3, 1, 1, 1}, 3), uneven({2, 1, 1, 2, "block"}, 4),
        uneven({8, 1, 1, 3}, 1), uneven({4, 1, 1, 3}, 6), uneven({3, 1, 1}, 12),
        uneven({3, 2, 1, 2}, 3), uneven({2, 1, 2, 1}, 4), uneven({2, 2, 2, 3, "selective"}, 4),
        uneven({1, 1, 2, 0, "none", 2}, 4), uneven({2, 1, 2, 2, "none", 3}, 4),
        uneven({.dp = 4, .tp = 1, .pp = 1, .zero = 3, .zero_group = 2}, 4)};
    for (const Point& p : points) expect_same(p, trained(p), one_rank, 1e-10);
}

TEST_IF(kIsFp64, unequal_shares_of_documents_and_of_muon) {
    for (const Point& p : {uneven({3, 1, 1, 2}, 3), uneven({5, 1, 1, 0}, 1)})
        for (const size_t kind : {size_t(7), size_t(10), std::size(kKinds) - 1}) {
            Point one = {1, 1, 1}, several = p;
            one.kind = several.kind = kind;
            one.muon = several.muon = kind == 7 ? 2 : 0;
            expect_same(several, trained(several), trained(one), 1e-10);
        }
}

// Where all ranks have equal shares, run.elastic changes no bit.
TEST_IF(kIsFp64, equal_shares_have_equal_bits) {
    for (Point p : {Point{4, 1, 1, 2}, Point{2, 1, 2, 0, "none", 2}}) {
        const TrainedPoint plain = trained(p);
        p.elastic = true;
        EXPECT(trained(p) == plain, "%s: other bits", p.text().c_str());
    }
}

// Each sample of a step once, whatever the ranks; a rank without samples reads others', which do not count.
TEST_IF(kIsFp64, ranks_share_the_samples_of_each_step) {
    const std::string path = test::write_shard(test::folder("deals.bin"), test::learnable_ids(3000, 60));
    const Dataset set = open_dataset("data.train", {{path}}, 5, 1, true);
    const uint64_t rows = 12, first = 24;
    for (const int ranks : {1, 2, 3, 5, 7, 16})
        for (const int B : {1, 3, 4, 12}) {
            const int micros = int(rows) / B, rounds = (micros + ranks - 1) / ranks;
            std::vector<int> seen(size_t(3 * rows));
            for (int r = 0; r < ranks; r++) {
                const Deal deal = {.B = B, .rank = r, .ranks = ranks, .rounds = rounds, .rows = rows};
                Loader loader(set, deal, first);
                for (uint64_t step = 0; step < 3; step++) {
                    for (int m = 0; m < rounds; m++) {
                        const TokenBatch& got = loader.next();
                        const uint64_t at = got.counts ? uint64_t((m * ranks + r) * B) : 0;
                        TokenBatch expected;
                        load_batch(expected, set, first + step * rows + at, B);
                        EXPECT(got.tokens == expected.tokens, "rank %d of %d, step %d, %d", r, ranks,
                               int(step), m);
                        for (uint64_t i = 0; got.counts && i < uint64_t(B); i++)
                            seen[size_t(step * rows + at + i)]++;
                    }
                    EXPECT(loader.position() == first + (step + 1) * rows, "rank %d is at %zu", r,
                           size_t(loader.position()));
                }
                loader.move_to(first);
                EXPECT(loader.position() == first, "moved to %zu", size_t(loader.position()));
            }
            for (const int times : seen)
                EXPECT(times == 1, "%d ranks, B %d: a sample %d times", ranks, B, times);
        }
}

// The largest by which no rank computes much more than its share.
TEST_IF(kIsFp64, micro_batches_are_chosen_for_unequal_shares) {
    Config cfg = uneven({3, 1, 1}, 0).config();
    cfg.train.batch_tokens = 256 * cfg.model.context;
    run_threads(cfg, [&](const Config& c, const Mesh& mesh) {
        const size_t room = size_t(1) << 40;
        const int B = fitting_micro_batch(c, mesh, false, room);
        const int64_t computed = B * micros_of_step(c, mesh.dp.size, B);
        EXPECT(256 % B == 0 && 8 * computed <= 9 * 86 && B == 32, "%d rows at once, %d in all", B,
               int(computed));
        EXPECT(fitting_micro_batch(c, mesh, false, room, 64) == B, "an earlier one that wastes a third");
        EXPECT(fitting_micro_batch(c, mesh, false, room, 4) == 4, "an earlier one that fits");
        return 0;
    });
}

}  // namespace PRECISION
