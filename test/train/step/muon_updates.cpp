// Muon against the formula in plain loops, and what the optimizer keeps for it.
#include <cmath>
#include <map>

#include "test/compare.h"
#include "test/tiny.h"

namespace PRECISION {

static Config muon_config() {
    Config cfg;
    cfg.model = {.layers = 2, .heads = 4, .channels = 24, .context = 13, .vocab = 67, .init = "random"};
    cfg.model.kv_heads = 2, cfg.model.activation = Activation::Swiglu, cfg.model.ffn_channels = 40;
    cfg.train = {.steps = 10, .batch_tokens = 4 * 13, .micro_batch = 2, .max_skips = 0};
    cfg.optimizer.kind = OptimizerKind::Muon;
    cfg.optimizer.lr = 1e-2, cfg.optimizer.schedule = "constant", cfg.optimizer.warmup = 0;
    cfg.optimizer.matrix_decay = 0.3, cfg.optimizer.momentum_warmup = 4;
    return cfg;
}

// (rows, cols), row-major
struct Matrix {
    int rows, cols;
    Wide x;
    double& at(int i, int j) { return x[size_t(i * cols + j)]; }
    double at(int i, int j) const { return x[size_t(i * cols + j)]; }
};
static Matrix transposed(const Matrix& a) {
    Matrix t{a.cols, a.rows, Wide(a.x.size())};
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < a.cols; j++) t.at(j, i) = a.at(i, j);
    return t;
}
static Matrix product(const Matrix& a, const Matrix& b) {
    Matrix c{a.rows, b.cols, Wide(size_t(a.rows * b.cols))};
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < b.cols; j++)
            for (int k = 0; k < a.cols; k++) c.at(i, j) += a.at(i, k) * b.at(k, j);
    return c;
}

static Matrix orthogonalized(const Matrix& u, const std::vector<MuonCoefficients>& iterations) {
    double squares = 0;
    for (const double v : u.x) squares += v * v;
    Matrix x = u.rows > u.cols ? transposed(u) : u;
    for (double& v : x.x) v /= 1.01 * std::sqrt(squares) + 1e-7;
    for (const auto& [a, b, c] : iterations) {
        const Matrix A = product(x, transposed(x)), AA = product(A, A);
        Matrix B = A;
        for (size_t i = 0; i < B.x.size(); i++) B.x[i] = b * A.x[i] + c * AA.x[i];
        const Matrix Bx = product(B, x);
        for (size_t i = 0; i < x.x.size(); i++) x.x[i] = a * x.x[i] + Bx.x[i];
    }
    return u.rows > u.cols ? transposed(x) : x;
}

struct Values { Wide master, momentum, grad; };
static Values values_of(Tiny& t, const Tensor& tensor) {
    const auto part = [&](const real* from) {
        const size_t start = tensor.start;
        return wide(std::vector<real>(from + start, from + start + tensor.param.count()));
    };
    return {part(t.masters()), part(t.state("m")), part(t.model.shards.grads)};
}

// The formula for rows first .. first + rows of a tensor, in place.
static void update(Values& v, const OptimizerConfig& o, int64_t step, double scale, int first, int rows,
                   int cols) {
    const size_t start = size_t(first * cols), count = size_t(rows * cols);
    const double mu = step >= 4 ? o.momentum : 0.85 + (o.momentum - 0.85) * double(step) / 4;
    Matrix u{rows, cols, Wide(count)};
    for (size_t i = 0; i < count; i++) {
        const double g = scale * v.grad[start + i];
        double& m = v.momentum[start + i];
        m = mu * m + (1 - mu) * g;
        u.x[i] = (1 - mu) * g + mu * m;
    }
    const Matrix x = orthogonalized(u, iterations_of(o));
    const double lr = o.matrix_lr, stretch = std::sqrt(std::max(1., double(rows) / cols));
    for (size_t i = 0; i < count; i++) {
        double& w = v.master[start + i];
        const double step_of = lr * stretch * x.x[i];
        w -= step_of + (!o.cautious || step_of * w >= 0 ? lr * o.matrix_decay * w : 0);
    }
}

// Rows of each matrix of a tensor, as models.md has them: q, k, v; gate, up.
static std::vector<int> matrices_of(const Tensor& t) {
    if (t.param.name == std::string("qkvw")) return {24, 12, 12};
    if (t.param.name == std::string("fcw")) return {40, 40};
    return {t.param.rows};
}

static void expect_the_formula(const Config& cfg) {
    Tiny t(cfg);
    t.shake(0.1);
    Loader data(t.set, 2, 0, 0, 1);
    int matrices = 0;
    for (int64_t step = 0; step < 6; step++) {
        t.model.pipeline.run(data);
        std::map<std::string, Values> expected, before;
        for (const Tensor& tensor : t.model.shards.layout.tensors)
            if (tensor.trailing) expected[tensor.name] = before[tensor.name] = values_of(t, tensor);
        enqueue_update(t.model, cfg.optimizer.lr, step);
        const double norm = t.model.statistics->read().norm;
        const double clip = cfg.optimizer.grad_clip, scale = norm > clip ? clip / norm : 1;
        for (const Tensor& tensor : t.model.shards.layout.tensors) {
            if (!tensor.trailing) continue;
            Values& want = expected[tensor.name];
            int first = 0;
            for (const int rows : matrices_of(tensor)) {
                update(want, cfg.optimizer, step, scale, first, rows, tensor.param.cols);
                first += rows;
                matrices++;
            }
            const Values got = values_of(t, tensor);
            double error = 0, moved = 0;
            for (size_t i = 0; i < got.master.size(); i++) {
                error += std::pow(got.master[i] - want.master[i], 2);
                moved += std::pow(want.master[i] - before[tensor.name].master[i], 2);
            }
            const double off = std::sqrt(error / moved), most = kIsFp64 ? 1e-9 : kIsBf16 ? 0.5 : 1e-2;
            EXPECT(off <= most, "%s, step %d: the update is off by %.2g", tensor.name.c_str(), int(step),
                   off);
        }
    }
    EXPECT(matrices == 6 * 2 * 7, "%d matrices", matrices);
}

TEST(matrices_follow_the_formula) {
    for (const Polynomial p : {Polynomial::Polar, Polynomial::Quintic, Polynomial::Cubic})
        for (const int iterations : {0, 3, 7}) {
            Config cfg = muon_config();
            cfg.optimizer.polynomial = p, cfg.optimizer.iterations = iterations;
            cfg.optimizer.cautious = iterations == 3;
            expect_the_formula(cfg);
        }
}

// What all iterations make of a singular value, polar's best on [1e-3, 1]. The least and the largest result
// follow from the published coefficients: a digit in the wrong place moves them.
TEST_IF(kIsFp64, polynomials_bring_singular_values_to_one) {
    OptimizerConfig o;
    for (const auto& [p, low, high] : {std::tuple{Polynomial::Polar, 0.85887, 1.14112},
                                       {Polynomial::Quintic, 0.68183, 1.13436},
                                       {Polynomial::Cubic, 0.99999, 1.}}) {
        o.polynomial = p;
        double least = 2, most = 0;
        for (double s = 0.01; s <= 1 / 1.01; s += 0.001) {
            double x = s;
            for (const auto& [a, b, c] : iterations_of(o)) x *= a + b * x * x + c * x * x * x * x;
            least = std::min(least, x);
            most = std::max(most, x);
        }
        EXPECT_NEAR(least, low, 2e-5);
        EXPECT_NEAR(most, high, 2e-5);
    }
    EXPECT(iterations_of(o).size() == 12, "%zu iterations", iterations_of(o).size());
    o.polynomial = Polynomial::Polar, o.iterations = 6;
    EXPECT(iterations_of(o)[5] == iterations_of(o)[4] && iterations_of(o).size() == 6, "the last repeats");
}

// Of matrices the first moment alone.
TEST(second_moments_are_of_all_but_matrices) {
    Config cfg = muon_config();
    const Tiny muon(cfg);
    cfg.optimizer.kind = OptimizerKind::Adamw;
    const Tiny adamw(cfg);
    size_t matrices = 0;
    for (const Tensor& t : muon.model.shards.layout.tensors)
        if (t.trailing) matrices += t.param.count();
    const auto elements = [](const Tiny& t, const char* name) {
        for (const StateSlot& slot : t.model.shards.state)
            if (slot.name == std::string(name)) return slot.at.back();
        return size_t(0);
    };
    EXPECT(elements(muon, "m") == muon.size() && elements(adamw, "v") == adamw.size());
    EXPECT(elements(muon, "v") + matrices <= muon.size() && elements(muon, "v") > 0, "%zu second moments",
           elements(muon, "v"));
}

// State is found by its name, whatever the order of the list.
TEST(an_update_takes_the_state_that_it_names) {
    const Config cfg = muon_config();
    const Tiny scratch(cfg);
    const auto state_after = [&](bool reversed) {
        std::vector<StateSlot> slots = Optimizer::slots(cfg.optimizer);
        if (reversed) std::reverse(slots.begin(), slots.end());
        const Dims d = dims_of(cfg, cfg.model.vocab);
        Shards shards(d, whole_model(d.L), Mesh(),
                      {.state = slots, .trailing = Optimizer::trailing(cfg.optimizer, d)});
        Zero zero(shards);
        Optimizer optimizer(cfg, zero);
        Arena arena;
        zero.add_weights_to(arena, arena), zero.add_training_to(arena, arena), optimizer.add_to(arena);
        arena.allocate(ops::device_allocate, ops::device_free);
        restore(shards, random_weights(d, 1));
        for (size_t i = 0; i < shards.layout.size(); i++) shards.grads[i] = real(std::sin(double(i)));
        double squares = 0;
        const double loss = 1;
        optimizer.sum_squares(&squares);
        optimizer.clip(&squares, &loss);
        optimizer.update(1e-2, 0);
        std::map<std::string, std::vector<real>> state;
        for (const StateSlot& slot : shards.state)
            state[slot.name] = values_of(slot);
        return state;
    };
    const auto state = state_after(false);
    EXPECT(state.size() == 2 + !kMasterIsParam && state.at("m") != state.at("v"), "%zu slots", state.size());
    EXPECT(state_after(true) == state);
}

// Rates of their own, by the schedule of lr: a group with a tiny rate hardly moves.
TEST(groups_have_learning_rates_of_their_own) {
    struct Case { double OptimizerConfig::* rate; std::vector<std::string> tensors; };
    const std::vector<Case> cases = {{&OptimizerConfig::embed_lr, {"wte", "wpe"}},
                                     {&OptimizerConfig::head_lr, {"headw"}},
                                     {&OptimizerConfig::vector_lr, {"h.1.ln1w", "lnfb", "h.0.fcb", "headb"}}};
    for (const OptimizerKind kind : {OptimizerKind::Adamw, OptimizerKind::Muon})
        for (const Case& c : cases) {
            Config cfg = muon_config();
            cfg.optimizer.kind = kind, cfg.model.tied = false, cfg.optimizer.weight_decay = 0;
            cfg.optimizer.*c.rate = 1e-12;
            Tiny t(cfg);
            t.shake(0.1);
            const std::vector<real> before(t.masters(), t.masters() + t.size());
            (void)train_steps(t, 1);
            for (const Tensor& tensor : t.model.shards.layout.tensors) {
                double moved = 0;
                for (size_t i = tensor.start; i < tensor.start + tensor.param.used(); i++)
                    moved = std::max(moved, std::fabs(double(t.masters()[i] - before[i])));
                const bool still = std::find(c.tensors.begin(), c.tensors.end(), tensor.name) !=
                                   c.tensors.end();
                const bool of_group = still || (c.rate == cases[2].rate && tensor.param.cols == 1);
                EXPECT(of_group == (moved < 1e-6), "%s moves by %g", tensor.name.c_str(), moved);
            }
        }
}

// The setting cautious is of Muon's matrices; of AdamW's with cautious_adamw.
TEST(cautious_decay_is_of_muons_matrices) {
    const auto masters = [](bool cautious, bool cautious_adamw) {
        Config cfg = muon_config();
        cfg.optimizer.weight_decay = 5, cfg.optimizer.cautious = cautious;
        cfg.optimizer.cautious_adamw = cautious_adamw;
        Tiny t(cfg);
        t.shake(0.1);
        (void)train_steps(t, 1);
        return std::vector<real>(t.masters(), t.masters() + t.size());
    };
    const auto plain = masters(false, false), cautious = masters(true, false), both = masters(true, true);
    const Tiny t(muon_config());
    for (const Tensor& tensor : t.model.shards.layout.tensors) {
        const auto differs = [&](const std::vector<real>& a, const std::vector<real>& b) {
            return !std::equal(a.begin() + ptrdiff_t(tensor.start),
                               a.begin() + ptrdiff_t(tensor.start + tensor.param.used()),
                               b.begin() + ptrdiff_t(tensor.start));
        };
        const bool embedding = tensor.name == "wte" || tensor.name == "wpe";
        EXPECT(differs(plain, cautious) == tensor.trailing, "%s by cautious", tensor.name.c_str());
        EXPECT(differs(cautious, both) == embedding, "%s by cautious_adamw", tensor.name.c_str());
    }
}

// A step that is not finite moves nothing, momentum included.
TEST(a_skipped_step_changes_nothing) {
    Tiny t(muon_config());
    t.shake(0.1);
    Loader data(t.set, 2, 0, 0, 1);
    Trace trace;
    train_step(t, data, 0, trace);
    Trace before, after;
    before.keep_state(t);
    t.model.pipeline.run(data);
    t.model.shards.grads[t.tensor("h.1.fcw").start + 5] = real(NAN);
    enqueue_update(t.model, 1e-2, 1);
    after.keep_state(t);
    EXPECT(!t.model.statistics->read().finite && before == after, "the state has changed");
}

}  // namespace PRECISION
