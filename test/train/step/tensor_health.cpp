// Statistics of tensors: those of one rank on every mesh, at every level of recomputation, for both
// optimizers; equal to their definition; and no bit of the training changes.
#include <cmath>
#include <cstring>
#include <map>

#include "llmc/comm/launch/launch.h"
#include "test/lattice_point.h"

namespace PRECISION {

// Of each step: gradient norms of the tensors, and the spreads.
struct Measured {
    std::vector<std::vector<double>> norms;
    std::vector<Health> reports;
    Trace trace;
};

// A step of StepLog's order.
static void measured_step(Tiny& t, Loader& data, int s, Measured& m) {
    HealthMeter* const health = t.model.health ? &*t.model.health : nullptr;
    if (health) health->begin(s + 1);
    t.model.pipeline.run(data);
    enqueue_update(t.model, learning_rate(t.cfg.optimizer, t.cfg.train.steps, s), s);
    if (health && health->measuring) m.reports.push_back(health->collect());
    const StepResult r = t.model.statistics->read();
    m.trace.losses.push_back(r.loss), m.trace.norms.push_back(r.norm);
    m.norms.push_back(r.tensor_norms);
}

static int train(const Config& cfg, const Mesh& mesh, Measured& measured) {
    Tiny t(cfg, false, mesh);
    t.shake(0.1);
    Measured m;
    Loader data(t.set, t.model.pipeline.deal(mesh.dp.index), 0);
    for (int s = 0; s < kSteps; s++) measured_step(t, data, s, m);
    if (mesh.world.size == 1) m.trace.keep_state(t);
    if (mesh.rank == 0) measured = std::move(m);
    return 0;
}

static Measured run(const Point& p) {
    Config cfg = p.config();
    cfg.log.health = 2;
    Measured measured;
    if (cfg.parallel.ranks == 1) train(cfg, Mesh(), measured);
    else run_threads(cfg, [&](Config c, const Mesh& mesh) { return train(c, mesh, measured); });
    return measured;
}

static bool near(double a, double b) { return std::fabs(a - b) <= 1e-10 * std::max(std::fabs(a), 1e-12); }

// Sums and the largest to 1e-10, counts to the unit. A key's bias has a gradient of rounding alone, so that
// neither the bins nor the zeros of qkvb are anybody's but the rounding's.
static bool same(const std::string& name, const Spread& a, const Spread& b) {
    if (!near(a.squares, b.squares) || !near(a.sum, b.sum) || !near(a.largest, b.largest)) return false;
    if (a.count != b.count || a.nonfinite != b.nonfinite) return false;
    if (name.ends_with("qkvb")) return true;
    return a.zeros == b.zeros && memcmp(a.bins, b.bins, sizeof a.bins) == 0;
}

static void expect_same(const Point& p, const Measured& m, const Measured& one) {
    EXPECT(m.reports.size() == size_t(kSteps / 2) && one.reports.size() == m.reports.size(), "%zu reports",
           m.reports.size());
    for (size_t r = 0; r < std::min(m.reports.size(), one.reports.size()); r++) {
        const Health &a = one.reports[r], &b = m.reports[r];
        EXPECT(a.step == b.step && a.tensors.size() == b.tensors.size() &&
               a.activations.size() == b.activations.size(), "%s", p.text().c_str());
        for (size_t i = 0; i < a.tensors.size(); i++) {
            const TensorHealth &x = a.tensors[i], &y = b.tensors[i];
            EXPECT(x.name == y.name && same(x.name, x.weight, y.weight) &&
                   same(x.name, x.gradient, y.gradient) && same(x.name, x.update, y.update),
                   "%s: %s: weights %.17g %.17g, gradients %.17g %.17g, updates %.17g %.17g",
                   p.text().c_str(), x.name.c_str(), x.weight.squares, y.weight.squares, x.gradient.squares,
                   y.gradient.squares, x.update.squares, y.update.squares);
        }
        for (size_t i = 0; i < a.activations.size(); i++) {
            const ActivationHealth &x = a.activations[i], &y = b.activations[i];
            EXPECT(x.name == y.name && same(x.name, x.values, y.values), "%s: %s: %.17g and %.17g, %g and %g",
                   p.text().c_str(), x.name.c_str(), x.values.squares, y.values.squares, x.values.count,
                   y.values.count);
        }
    }
    for (size_t s = 0; s < one.norms.size(); s++)
        for (size_t i = 0; i < one.norms[s].size(); i++)
            EXPECT(near(one.norms[s][i], m.norms[s][i]), "%s: norm %zu of step %zu: %.17g and %.17g",
                   p.text().c_str(), i, s, one.norms[s][i], m.norms[s][i]);
}

TEST_IF(kIsFp64, every_mesh_measures_what_one_rank_measures) {
    const char* const levels[] = {"none", "selective", "block"};
    int turn = 0;
    for (const auto& [kind, muon] : {std::pair(size_t(0), false), {0, true}, {8, true}, {10, false}}) {
        Point one{1, 1, 1};
        one.kind = kind, one.muon = muon;
        const Measured one_rank = run(one);
        for (Point p : {Point{4, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}, {1, 4, 2}}) {
            p.kind = kind, p.muon = muon;
            p.recompute = levels[turn++ % 3];
            for (p.zero = 0; p.zero < 4; p.zero++) {
                // ZeRO does not know the kind: with others than the first, a stage each
                const bool taken = p.dp > 1 && (kind == 0 || p.zero == turn % 4);
                if (p.zero == 0 || taken) expect_same(p, run(p), one_rank);
            }
        }
        Point shared{.dp = 1, .tp = 1, .pp = 1, .kind = kind, .muon = muon, .divided = true};
        const Measured whole_rows = run(shared);
        shared.cp = 3, shared.zero = 2;
        expect_same(shared, run(shared), whole_rows);
        Point p{4, 1, 1, 2};
        p.kind = kind, p.muon = muon, p.zero_group = 2, p.micro_batch = 3;
        expect_same(p, run(p), one_rank);
    }
}

// Weights from the masters, updates from two copies of all weights, norms from the gradients.
TEST(statistics_are_those_of_the_tensors) {
    for (const auto& [muon, rounded] : {std::pair(false, Rounded::Nothing), {true, Rounded::Nothing},
                                        {true, kMostRounded}}) {
        Point p{1, 1, 1};
        p.muon = muon, p.rounded = rounded;
        Config cfg = p.config();
        cfg.log.health = 1;
        Tiny t(cfg);
        t.shake(0.1);
        Loader data(t.set, cfg.train.micro_batch, 0, 0, 1);
        std::map<std::string, std::vector<real>> before;
        for (const Tensor& w : whole_tensors(t.d)) before[w.name] = t.whole(w);
        Measured m;
        measured_step(t, data, 0, m);
        const Health& h = m.reports.at(0);
        double squares = 0;
        size_t i = 0;
        for (const Tensor& w : whole_tensors(t.d)) {
            const std::vector<real> after = t.whole(w);
            double weight = 0, update = 0, largest = 0;
            for (size_t k = 0; k < after.size(); k++) {
                const double change = double(real(after[k] - before[w.name][k]));
                weight += double(after[k]) * double(after[k]), update += change * change;
                largest = std::max(largest, std::fabs(change));
            }
            const TensorHealth& r = h.tensors.at(i);
            const double norm = m.norms[0].at(i++);
            EXPECT(r.name == w.name && r.weight.count == double(after.size()), "%s", r.name.c_str());
            EXPECT_NEAR(r.weight.squares, weight, 1e-12 * weight);
            EXPECT_NEAR(r.update.squares, update, 1e-12 * update);
            EXPECT(r.update.largest == largest && r.weight.nonfinite == 0, "%s", r.name.c_str());
            EXPECT_NEAR(norm * norm, r.gradient.squares, 1e-5 * r.gradient.squares);
            squares += norm * norm;
        }
        EXPECT_NEAR(std::sqrt(squares), m.trace.norms[0], 1e-5 * m.trace.norms[0]);
        EXPECT(h.activations.size() == 7 * 7 + 2 && h.activations[0].values.count == kRows * 13 * 16.,
               "%zu activations", h.activations.size());
    }
}

// A weight that is not finite: counted, and the step changes nothing.
TEST_IF(!kIsBf16, what_is_not_finite_is_counted) {
    Config cfg = Point{1, 1, 1}.config();
    cfg.log.health = 1;
    Tiny t(cfg);
    Loader data(t.set, cfg.train.micro_batch, 0, 0, 1);
    t.masters()[t.tensor("h.3.fcw").start + 5] = real(NAN);
    Measured m;
    measured_step(t, data, 0, m);
    size_t i = 0;
    for (const TensorHealth& r : m.reports.at(0).tensors) {
        const double norm = m.norms[0].at(i++);
        const double here = r.name == "h.3.fcw";
        EXPECT(r.weight.nonfinite == here && r.update.nonfinite == here &&
               r.update.zeros == r.update.count - here, "%s", r.name.c_str());
        EXPECT((r.gradient.nonfinite > 0) == !std::isfinite(norm), "%s", r.name.c_str());
    }
    for (const ActivationHealth& a : m.reports.at(0).activations) {
        const bool before = a.name < "h.3" || a.name == "h.3.x" || a.name == "h.3.ln1" ||
                            a.name == "h.3.atty" || a.name == "h.3.x1" || a.name == "h.3.ln2";
        EXPECT((a.values.nonfinite > 0) == !before, "%s", a.name.c_str());
    }
}

// The embedding has more elements than an update of a step that measures takes at once.
TEST(training_has_the_same_bits_with_statistics) {
    struct Case { bool muon, offload; Rounded rounded; };
    const Case cases[] = {{false, false, Rounded::Nothing}, {true, false, Rounded::Nothing},
                          {true, true, kMostRounded}};
    for (const auto& [muon, offload, rounded] : cases) {
        Config cfg = Point{1, 1, 1}.config();
        cfg.model.layers = 2, cfg.model.channels = 32, cfg.model.vocab = 33000;
        cfg.train.batch_tokens = 2 * 13;
        cfg.optimizer.stochastic_rounding = kIsBf16;
        if (muon) cfg.optimizer.kind = OptimizerKind::Muon;
        if (offload) cfg.memory.offload = Offload::Optimizer;
        round_state(cfg.optimizer, rounded);
        EXPECT(size_t(cfg.model.vocab * cfg.model.channels) > Optimizer::kChunk);
        Measured without, with;
        const auto planned = [&] {
            const Model model(cfg, Mesh(), cfg.train.micro_batch, false);
            size_t bytes = 0;
            for (const auto& row : model.arena.plan())
                if (row.name == "statistics of tensors") bytes += row.bytes;
            return bytes;
        };
        EXPECT(planned() == 0, "memory for statistics that are off");
        train(cfg, Mesh(), without);
        cfg.log.health = 2;
        EXPECT(planned() >= Optimizer::kChunk * sizeof(real), "%zu bytes are planned", planned());
        train(cfg, Mesh(), with);
        EXPECT(without.reports.empty() && without.norms[0].empty() && with.reports.size() == kSteps / 2);
        EXPECT(without.trace == with.trace, "Muon %d, offload %d: statistics change bits", muon, offload);
    }
}

}  // namespace PRECISION
