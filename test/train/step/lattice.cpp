// A model on every mesh: data, tensor and pipeline parallelism, ZeRO, recomputation, schedules, over ranks on
// threads. Each of five steps has the loss and norm of a single rank, and the weights end equal.
//
// LATTICE=all (make test-full) runs every point, about 30 points also under mpirun; else one of 45 runs.
// mpirun starts this same binary (LATTICE_POINT in the environment).
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "test/lattice_run.h"
#include "test/own_processes.h"

namespace PRECISION {

// One point of how many is run.
static int every() {
    const char* which = getenv("LATTICE");
    return which && !strcmp(which, "all") ? 1 : 45;
}

// The points of a list, or a first one.
static std::vector<Point> chosen(std::vector<Point> points) {
    if (every() > 1) points.resize(1, Point{1, 1, 1});
    return points;
}

static const char* const levels[] = {"none", "selective", "block"};

static std::vector<Point> meshes(int most) {
    std::vector<Point> all;
    for (int dp : {1, 2, 3, 4})
        for (int tp : {1, 2, 4})
            for (int pp : {1, 2, 4})
                if (dp * tp * pp <= most) all.push_back({dp, tp, pp});
    return all;
}

// An interleaved pipeline needs as many layers as chunks, and micro-batches in groups of pp.
static bool interleaves(const Point& p, int chunks) {
    return p.pp > 1 && p.pp * chunks <= 7 && kRows / p.dp / p.micro_batch % p.pp == 0;
}

// The four stages of ZeRO on a point: each against one rank, 0 = 1 and 2 = 3 bit for bit, and 0 = 1 = 2 = 3
// if a rank's batch is one micro-batch.
static void expect_stages(Point p, const TrainedPoint& one_rank) {
    std::vector<TrainedPoint> stages;
    for (p.zero = 0; p.zero < 4; p.zero++) {
        stages.push_back(trained(p));
        expect_same(p, stages.back(), one_rank, 1e-10);
    }
    p.zero = 0;
    EXPECT(stages[0] == stages[1], "%s: ZeRO 0 and 1 differ", p.text().c_str());
    EXPECT(stages[2] == stages[3], "%s: ZeRO 2 and 3 differ", p.text().c_str());
    if (p.micro_batch * p.dp == kRows)
        EXPECT(stages[0] == stages[2], "%s: ZeRO 0 and 2 differ", p.text().c_str());
    else expect_same(p, stages[2], stages[0], 1e-12);
}

TEST_IF(kIsFp64, every_mesh_trains_as_one_rank) {
    const TrainedPoint one_rank = trained({1, 1, 1});
    int turn = 0;
    for (Point p : meshes(8))
        for (int level = 0; level < 3; level++)
            for (int chunks : {1, 2, 3}) {
                if (chunks > 1 && !interleaves(p, chunks)) continue;
                if (turn++ % every() != (chunks + p.dp) % every()) continue;
                p.recompute = levels[level], p.virtual_stages = chunks;
                expect_stages(p, one_rank);
            }
}

TEST_IF(kIsFp64, one_micro_batch_and_larger_ones) {
    const TrainedPoint one_rank = trained({1, 1, 1});
    for (const Point& mesh : chosen({{2, 2, 2}, {3, 1, 1}, {2, 1, 1}, {4, 1, 2}, {1, 4, 2}}))
        for (int micro_batch : {kRows / mesh.dp, 2}) {
            Point p = mesh;
            p.micro_batch = micro_batch;
            if (kRows / p.dp % micro_batch == 0) expect_stages(p, one_rank);
        }
}

TEST_IF(kIsFp64, every_kind_of_model_trains_as_one_rank) {
    for (size_t kind = 1; kind < std::size(kKinds); kind++) {
        Point one{1, 1, 1};
        one.kind = kind;
        const TrainedPoint one_rank = trained(one);
        for (Point p : chosen({{2, 2, 2, 0, "block"}, {2, 2, 1, 0, "selective"}, {1, 4, 2}, {4, 1, 1}})) {
            p.kind = kind, p.offload = p.dp == 4;
            expect_stages(p, one_rank);
        }
    }
}

// Tensors that travel beside the stream, through chunks of any pipeline stage and level.
TEST_IF(kIsFp64, shortcuts_travel_with_the_stream) {
    Point one{1, 1, 1};
    one.kind = 10;
    const TrainedPoint one_rank = trained(one);
    for (Point p : chosen({{1, 1, 2, 0, "none", 2}, {1, 2, 2, 0, "selective", 3}, {2, 1, 2, 0, "block", 2},
                           {1, 1, 4, 0, "selective"}, {1, 4, 2, 0, "block"}})) {
        p.kind = 10;
        expect_stages(p, one_rank);
        p.micro_batch = 3;
        if (interleaves(p, p.virtual_stages)) expect_stages(p, one_rank);
    }
}

TEST_IF(kIsFp64, muon_trains_as_one_rank) {
    for (const size_t kind : {0, 7, 8, 10}) {               // 7 has SwiGLU: fc is two matrices
        Point one{1, 1, 1};
        one.kind = kind, one.muon = kind == 7 ? 2 : 1;
        const TrainedPoint one_rank = trained(one);
        std::vector<Point> points = {{2, 2, 2, 0, "block"}, {1, 4, 1}, {1, 2, 2}, {4, 1, 1}};
        if (kind == 7) points.insert(points.end(), {{.dp = 4, .tp = 1, .pp = 1, .zero_group = 2},
                                                    {1, 2, 2, 0, "selective", 2},
                                                    {.dp = 2, .tp = 2, .pp = 1, .offload = 1}});
        for (Point p : chosen(points)) {
            p.kind = kind, p.muon = one.muon;
            expect_stages(p, one_rank);
        }
    }
}

// Shards within groups, copies between them.
TEST_IF(kIsFp64, hybrid_shards_train_as_one_rank) {
    const TrainedPoint one_rank = trained({1, 1, 1});
    for (Point p : chosen({{4, 1, 1}, {4, 1, 2}, {4, 2, 1}}))
        for (int group : {1, 2}) {
            p.zero_group = group;
            expect_stages(p, one_rank);
        }
}

// Whoever comes first, and whether anything runs beside anything else: the same bits.
TEST_IF(kIsFp64, neither_overlap_nor_delays_change_a_bit) {
    for (Point p : chosen({{2, 1, 2, 2, "block", 2}, {4, 1, 1, 0}, {4, 1, 2, 1}, {2, 2, 2, 3}})) {
        const TrainedPoint plain = trained(p);
        p.delay_us = 100;
        EXPECT(trained(p) == plain, "%s: other bits with delays", p.text().c_str());
        p.overlap = false;
        EXPECT(trained(p) == plain, "%s: other bits with delays, without overlap", p.text().c_str());
        p.delay_us = 0;
        EXPECT(trained(p) == plain, "%s: other bits without overlap", p.text().c_str());
    }
}

// ---------------------------------------------------------------------------------------------------------
// by mpirun

static void write(const TrainedPoint& o, const std::string& path) {
    FILE* f = fopen(path.c_str(), "w");
    CHECK(f, "cannot write {}", path);
    for (const auto* part : {&o.losses, &o.norms}) for (double v : *part) fprintf(f, "%a ", v);
    for (real v : o.weights) fprintf(f, "%a ", double(v));
    fclose(f);
}

// The values of the other's sizes.
static TrainedPoint read(const std::string& path, const TrainedPoint& like) {
    TrainedPoint o = like;
    FILE* f = fopen(path.c_str(), "r");
    double v = NAN;
    const auto next = [&] { return f && fscanf(f, "%la", &v) == 1 ? v : NAN; };
    for (auto* part : {&o.losses, &o.norms}) for (double& x : *part) x = next();
    for (real& x : o.weights) x = real(next());
    if (f) fclose(f);
    return o;
}

static const bool was_program = [] {
    const char* config = getenv("LATTICE_POINT");
    if (!config || !kIsFp64) return false;
    Config cfg = parse_config(config, "LATTICE_POINT");
    cfg.parallel.ranks = 0;
    TrainedPoint outcome;
    const int code =
        run_ranks(cfg, [&](Config c, const Mesh& mesh) { return train_point(c, mesh, outcome); });
    if (!outcome.losses.empty()) write(outcome, getenv("LATTICE_OUT"));
    exit(code);
}();

static void expect_same_by_mpirun(const Point& p, const TrainedPoint& one_rank) {
    const std::string out = test::temporary_directory() + "/outcome";
    remove(out.c_str());
    const auto ran = test::run_own_processes(
        p.ranks(), "", fmt::format("LATTICE_POINT='{}' LATTICE_OUT={}", to_json(p.config()), out));
    EXPECT(ran.code == 0, "%s: exit code %d, %s", p.text().c_str(), ran.code, ran.err.c_str());
    expect_same(p, read(out, one_rank), one_rank, 1e-10);
    EXPECT(p.native || read(out, one_rank) == trained(p), "%s: MPI and threads differ", p.text().c_str());
}

// Only sums over all ranks, of losses and the gradient norm, have another order where the axes have.
TEST_IF(kIsFp64, orders_of_the_axes_change_no_bit_of_a_weight) {
    for (Point p : chosen({{2, 2, 2, 3, "block"}, {4, 2, 1, 2, "none", 1, 1, 2},
                           {.dp = 2, .tp = 2, .pp = 2, .virtual_stages = 2, .kind = 7, .muon = 1}})) {
        p.clips = false;
        const TrainedPoint usual = trained(p);
        for (const char* order : {"pp,tp,dp", "dp,tp,pp", "tp,dp,pp"}) {
            p.order = order;
            EXPECT(trained(p).weights == usual.weights, "%s: other weights", p.text().c_str());
        }
    }
    expect_stages({.dp = 2, .tp = 2, .pp = 2, .order = "pp,dp,tp"}, trained({1, 1, 1}));
}

TEST_IF(kIsFp64, meshes_by_mpirun) {
    if (!test::can_start_processes()) return;
    const TrainedPoint one_rank = trained({1, 1, 1});
    int turn = 0;
    for (Point p : meshes(8))
        for (int half = 0; half < 2; half++, turn++) {
            const bool groups = p.dp == 4;      // shards of two ranks each, and two copies, of each zero
            const bool turns = turn % 16 == 11 || (groups && p.tp * p.pp == 1);
            if (p.ranks() == 1 || (every() > 1 && !turns)) continue;
            p.zero = turn % 4, p.recompute = levels[turn % 3];
            p.virtual_stages = half && interleaves(p, 2) ? 2 : 1;
            p.zero_group = groups ? 2 : 0, p.native = p.dp > 1 && half;
            expect_same_by_mpirun(p, one_rank);
        }
}

TEST_IF(kIsFp64, kinds_of_models_by_mpirun) {
    if (!test::can_start_processes()) return;
    for (Point p : chosen({{.dp = 2, .tp = 2, .pp = 1, .zero = 3, .kind = 7, .muon = 2, .order = "dp,tp"},
                           {.dp = 2, .tp = 1, .pp = 2, .zero = 1, .kind = 10, .muon = 1, .offload = 1},
                           {.dp = 1, .tp = 2, .pp = 2, .kind = 8},
                           {.dp = 2, .tp = 1, .pp = 1, .zero = 2, .native = 1, .kind = 5, .muon = 1}}))
        expect_same_by_mpirun(p, trained({.dp = 1, .tp = 1, .pp = 1, .kind = p.kind, .muon = p.muon}));
}

// Lower precisions round in other places on other meshes: the same to their rounding.
TEST_IF(!kIsFp64, lower_precisions_come_close) {
    const TrainedPoint one_rank = trained({1, 1, 1});
    for (const Point& p : chosen({{2, 2, 2, 3, "block"}, {.dp = 4, .tp = 1, .pp = 1, .bf16_wire = true},
                                  {4, 1, 1, 3}, {2, 1, 1, 1}, {3, 1, 1, 2}, {1, 2, 1}, {1, 4, 2}, {1, 1, 4},
                                  {2, 1, 2, 2, "selective", 2},
                                  {.dp = 2, .tp = 2, .pp = 2, .zero = 3, .bf16_wire = true}})) {
        const TrainedPoint o = trained(p);
        Point wide = p;
        wide.bf16_wire = false;
        EXPECT(!p.bf16_wire || !(trained(wide) == o), "%s: nothing is rounded", p.text().c_str());
        const double loss = test::largest_difference(o.losses, one_rank.losses);
        const double norm = test::largest_difference(o.norms, one_rank.norms);
        const bool narrow = kIsBf16 || p.bf16_wire;
        EXPECT(loss <= (narrow ? 1e-2 : 1e-5) && norm <= (narrow ? 0.1 : 1e-3),
               "%s: losses %.2g apart, norms %.2g", p.text().c_str(), loss, norm);
        EXPECT(trained(p) == o, "%s: two runs differ", p.text().c_str());
    }
}

}  // namespace PRECISION
