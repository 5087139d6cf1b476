// Context parallelism: whole models whose rows ranks share train as one rank, with every other axis.
// LATTICE=all (make test-full) runs every point, else a few.
#include "test/lattice_run.h"

namespace PRECISION {

static bool all() {
    const char* which = getenv("LATTICE");
    return which && !strcmp(which, "all");
}

// Of one rank with the same rows.
static TrainedPoint on_one_rank(const Point& p) {
    return trained({.dp = 1, .tp = 1, .pp = 1, .kind = p.kind, .muon = p.muon, .documents = p.documents,
                    .divided = true});
}

static std::vector<Point> points() {
    std::vector<Point> few = {{.dp = 1, .tp = 1, .pp = 1, .zero = 3, .recompute = "block", .cp = 2},
                              {.dp = 1, .tp = 2, .pp = 1, .recompute = "selective", .cp = 3},
                              {.dp = 2, .tp = 1, .pp = 1, .zero = 1, .cp = 2, .heads = true},
                              {.dp = 1, .tp = 1, .pp = 2, .zero = 2, .micro_batch = 3, .cp = 2}};
    if (!all()) return few;
    for (const int cp : {2, 3, 4})
        for (const int zero : {0, 1, 2, 3})
            for (const auto& [dp, tp, pp] : {std::array{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}})
                few.push_back({.dp = dp, .tp = tp, .pp = pp, .zero = zero,
                               .recompute = zero ? "block" : "none",
                               .zero_group = dp == 2 && zero ? cp : 0, .cp = cp});
    return few;
}

TEST_IF(kIsFp64, ranks_that_share_rows_train_as_one) {
    for (const Point& p : points()) expect_same(p, trained(p), on_one_rank(p), 1e-10);
}

TEST_IF(kIsFp64, every_kind_of_model) {
    int turn = 0;
    for (size_t kind = 0; kind < std::size(kKinds); kind++) {
        std::vector<Point> meshes = points();
        if (!all()) meshes = {meshes[size_t(turn++) % meshes.size()]};
        for (Point p : meshes) {
            p.kind = kind, p.documents = kind % 2;
            p.muon = kind == 7;
            expect_same(p, trained(p), on_one_rank(p), 1e-10);
        }
    }
}

TEST_IF(kIsFp64, documents_offload_and_overlap) {
    Point p = {.dp = 1, .tp = 1, .pp = 1, .zero = 3, .recompute = "block", .delay_us = 100, .offload = 1,
               .cp = 4, .documents = true};
    const TrainedPoint one = on_one_rank(p), shared = trained(p);
    expect_same(p, shared, one, 1e-10);
    p.overlap = false;
    EXPECT(trained(p) == shared, "%s: other bits without overlap", p.text().c_str());
    p.order = "dp,pp,cp,tp";
    EXPECT(trained(p).weights == shared.weights, "%s: other weights", p.text().c_str());
}

}  // namespace PRECISION
