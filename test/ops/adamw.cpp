#include "test/compare.h"

#include <limits>

namespace PRECISION {

using cpu::AdamwTensor;
using cpu::GradientState;

struct Tensors {
    std::vector<real> master, m, v, grad;
    std::vector<floatX> param;
    GradientState state = {.norm = 1, .scale = real(0.5), .finite = 1};
    cpu::Adamw a = {.param = nullptr,
                    .master = nullptr,
                    .m = nullptr,
                    .v = nullptr,
                    .grad = nullptr,
                    .state = nullptr,
                    .beta1 = real(0.9),
                    .beta2 = real(0.95),
                    .eps = real(1e-8),
                    .step = 3,
                    .stochastic = false,
                    .seed = 42};

    explicit Tensors(size_t count)
        : master(normals<real>(count, 1)),
          m(normals<real>(count, 2, 0.1)),
          v(normals<real>(count, 3, 0.01)),
          grad(normals<real>(count, 4)),
          param(poisoned<floatX>(count)) {
        for (real& x : v) x = std::fabs(x);
    }
    void update(const std::vector<AdamwTensor>& runs) {
        a.param = sizeof(floatX) == sizeof(real) ? nullptr : param.data();
        a.master = master.data(), a.m = m.data(), a.v = v.data(), a.grad = grad.data(), a.state = &state;
        cpu::adamw_update(a, runs.data(), runs.size());
    }
};

static constexpr real kLr = real(0.01);

// Runs with and without decay and a gap between them; 40,000 elements are several grains.
static const std::vector<AdamwTensor> kRuns = {
    {0, 1, 100, kLr, 0}, {1, 40000, 1000, 2 * kLr, real(0.1)}, {40008, 17, 90001, kLr, 0}};
static constexpr size_t kCount = 40030;

static void expect_the_formula(bool cautious) {
    const Lent lent(2);
    Tensors t(kCount), before(kCount);
    t.a.cautious = cautious;
    t.update(kRuns);
    Wide master = wide(before.master), m = wide(before.m), v = wide(before.v), sums(kCount, 1),
         m_sums(kCount, 1), v_sums(kCount, 1);
    std::vector<bool> inside(kCount);
    for (const AdamwTensor& run : kRuns)
        for (size_t i = run.start; i < run.start + run.count; i++) {
            const double g = double(before.grad[i]) * 0.5, b1 = double(t.a.beta1), b2 = double(t.a.beta2);
            inside[i] = true;
            m_sums[i] = std::fabs(b1 * m[i]) + std::fabs((1 - b1) * g),
            v_sums[i] = b2 * v[i] + (1 - b2) * g * g;
            m[i] = b1 * m[i] + (1 - b1) * g, v[i] = b2 * v[i] + (1 - b2) * g * g;
            const double lr = double(run.lr);
            const double step = lr / (std::sqrt(v[i] / (1 - b2 * b2 * b2)) + 1e-8) / (1 - b1 * b1 * b1);
            const bool decays = !cautious || step * m[i] * master[i] >= 0;
            sums[i] = std::fabs(master[i]) + step * m_sums[i];
            master[i] -= step * m[i] + (decays ? lr * double(run.decay) * master[i] : 0);
        }
    EXPECT_CLOSE(t.master, master, sums);
    EXPECT_CLOSE(t.m, m, m_sums);
    EXPECT_CLOSE(t.v, v, v_sums);
    for (size_t i = 0; i < kCount; i++)
        if (inside[i] && t.a.param)
            EXPECT(double(t.param[i]) == double(floatX(t.master[i])), "param[%zu]", i);
        else EXPECT(std::isnan(double(t.param[i])), "param[%zu] was written", i);
}

TEST(matches_the_formula) {
    for (const bool cautious : {false, true}) expect_the_formula(cautious);
}

// The same elements in other runs, on other threads: the same bits, those of stochastic rounding included.
TEST(cuts_and_threads_change_no_bit) {
    std::vector<Tensors> runs;
    for (const int threads : {1, 2, 3})
        for (const size_t cut : {40000, 1, 16385, 39999}) {
            const Lent lent(threads);
            runs.emplace_back(kCount);
            runs.back().a.stochastic = true;
            runs.back().update({{1, cut, 1000, kLr, real(0.1)},
                                {1 + cut, 40000 - cut, 1000 + cut, kLr, real(0.1)}});
        }
    for (const Tensors& t : runs)
        EXPECT(same_bits(t.master, runs[0].master) && same_bits(t.param, runs[0].param));
}

// Columns of a wider matrix draw the numbers of where they are in the whole, however the rows are cut.
TEST_IF(sizeof(floatX) == 2, columns_round_as_in_the_whole) {
    const Lent lent(2);
    const size_t rows = 701, stride = 96, first = 37, cols = 33;
    Tensors whole(rows * stride), part(rows * cols);
    std::vector<Tensors*> both = {&whole, &part};
    for (Tensors* t : both) {
        t->a.stochastic = true;
        for (size_t i = 0; i < t->master.size(); i++)
            t->master[i] = real(1 + 0.25 / 128), t->m[i] = t->v[i] = t->grad[i] = 0;
    }
    whole.update({{0, rows * stride, 1000, kLr, 0}});
    const size_t cut = 300 * cols;
    part.update({{0, cut, 1000 + first, kLr, 0, cols, stride},
                 {cut, rows * cols - cut, 1000 + first + 300 * stride, kLr, 0, cols, stride}});
    int wrong = 0, up = 0;
    for (size_t i = 0; i < rows * cols; i++) {
        wrong += double(part.param[i]) != double(whole.param[i / cols * stride + first + i % cols]);
        up += double(part.param[i]) != 1;
    }
    EXPECT(wrong == 0 && up > int(rows * cols / 5), "%d are wrong, %d are rounded up", wrong, up);
}

TEST(nothing_moves_where_the_gradient_is_not_finite) {
    const Lent lent(2);
    Tensors t(kCount), before(kCount);
    t.state.finite = 0, t.state.scale = real(NAN);
    t.update(kRuns);
    EXPECT(same_bits(t.master, before.master) && same_bits(t.m, before.m) && same_bits(t.v, before.v));
}

// Equal masters, a quarter of the distance from a bfloat16 to the next.
TEST_IF(sizeof(floatX) == 2, stochastic_rounding) {
    const Lent lent(2);
    auto ups = [](int64_t step, uint64_t seed, uint64_t global) {
        Tensors t(40000);
        for (size_t i = 0; i < 40000; i++)
            t.master[i] = real(1 + 0.25 / 128), t.m[i] = t.v[i] = t.grad[i] = 0;
        t.a.stochastic = true, t.a.step = step, t.a.seed = seed;
        t.update({{0, 40000, global, kLr, 0}});
        std::vector<int> up;
        for (const floatX p : t.param) {
            EXPECT(double(p) == 1 || double(p) == 1 + 1. / 128, "%g", double(p));
            up.push_back(double(p) != 1);
        }
        return up;
    };
    auto share = [](const std::vector<int>& a, auto&& with) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); i++) sum += with(i);
        return sum / double(a.size());
    };
    const auto first = ups(1, 42, 0);
    EXPECT_NEAR(share(first, [&](size_t i) { return first[i]; }), 0.25, 0.01);
    for (const auto& other : {ups(2, 42, 0), ups(1, 43, 0), ups(1, 42, 40000), ups(1, 42, uint64_t(1) << 34)})
        EXPECT_NEAR(share(first, [&](size_t i) { return first[i] * other[i]; }), 0.0625,
                    0.008);  // independent
    EXPECT(ups(1, 42, 0) == first);
    Tensors t(2);
    t.master = {real(INFINITY), std::numeric_limits<real>::quiet_NaN()}, t.grad = t.m = t.v = {0, 0},
    t.a.stochastic = true;
    t.update({{0, 2, 0, kLr, 0}});
    EXPECT(!std::isfinite(double(t.param[0])) && std::isnan(double(t.param[1])));
}

TEST(norm_and_clipping) {
    const Lent lent(3);
    const double tolerance = sizeof(real) == 8 ? 1e-13 : 1e-5;
    for (const size_t count : {size_t(1), size_t(1000), cpu::kNormBlock, 2 * cpu::kNormBlock + 77}) {
        const auto grad = normals<real>(count, 1);
        const size_t blocks = (count + cpu::kNormBlock - 1) / cpu::kNormBlock;
        auto sums = poisoned<real>(blocks);
        cpu::sum_of_squares(sums.data(), grad.data(), count);
        double want = 0;
        for (const real g : grad) want += double(g) * double(g);
        for (const real clip : {real(0), real(0.5), real(1e9)}) {
            GradientState s;
            const double loss = 3;
            double squares = 0;
            cpu::sum_in_order(&squares, sums.data(), blocks);
            cpu::gradient_state(&s, &squares, &loss, clip);
            EXPECT_NEAR(s.norm, std::sqrt(want), tolerance * std::sqrt(want));
            EXPECT_NEAR(s.scale, clip == real(0.5) ? std::min(1., 0.5 / std::sqrt(want)) : 1, tolerance);
            EXPECT(s.finite == 1);
        }
    }
    const double ok = 4, nan = NAN, inf = INFINITY;
    for (const auto& [sum, loss, finite] :
         {std::tuple{ok, 1., 1}, {nan, 1., 0}, {inf, 1., 0}, {ok, NAN, 0}, {ok, INFINITY, 0}}) {
        GradientState s;
        cpu::gradient_state(&s, &sum, &loss, 1);
        EXPECT(s.finite == finite, "sum %g, loss %g", sum, loss);
    }
}

}  // namespace PRECISION
