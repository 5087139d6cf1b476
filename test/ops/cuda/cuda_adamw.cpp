#include "test/cuda.h"

#include <limits>

namespace PRECISION {

using cuda::AdamwTensor;

struct Settings {
    int64_t step = 3;
    bool stochastic = false;
    int finite = 1;
    real scale = real(0.5);
    bool cautious = false;
};

struct Tensors {
    std::vector<real> master, m, v, grad;
    std::vector<floatX> param;
    explicit Tensors(size_t count)
        : master(normals<real>(count, 1)), m(normals<real>(count, 2, 0.1)), v(normals<real>(count, 3, 0.01)),
          grad(normals<real>(count, 4)), param(poisoned<floatX>(count)) {
        for (real& x : v) x = std::fabs(x);
    }
    bool operator==(const Tensors& o) const {
        return same_bits(master, o.master) && same_bits(m, o.m) && same_bits(v, o.v) &&
               same_bits(param, o.param);
    }
};

static constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

static Tensors updated(Tensors t, const std::vector<AdamwTensor>& runs, const Settings& s) {
    const OnDevice master(t.master), m(t.m), v(t.v), grad(t.grad);
    const OnDevice param(t.param);
    const OnDevice state(std::vector<cuda::GradientState>{{.norm = 1, .scale = s.scale, .finite = s.finite}});
    cuda::adamw_update({.param = kMasterIsParam ? nullptr : param.p,
                        .master = master,
                        .m = m,
                        .v = v,
                        .grad = grad,
                        .state = state,
                        .beta1 = real(0.9),
                        .beta2 = real(0.95),
                        .eps = real(1e-8),
                        .step = s.step,
                        .stochastic = s.stochastic,
                        .cautious = s.cautious,
                        .seed = 42},
                       runs.data(), runs.size());
    t.master = master.host(), t.m = m.host(), t.v = v.host(), t.param = param.host();
    return t;
}

static constexpr real kLr = real(0.01);

// With and without decay, at any offset, of any length and key; 40,000 elements are several blocks.
static const std::vector<AdamwTensor> kRuns = {{0, 1, 100, kLr, 0},
                                               {1, 40000, 1000, 2 * kLr, real(0.1)},
                                               {40008, 17, 90001, kLr, 0},
                                               {40025, 0, 1, kLr, 0},
                                               {40032, 8, 90018, kLr, 0}};
static constexpr size_t kCount = 40047;

static void expect_the_cpus(bool cautious) {
    const Tensors before(kCount), t = updated(before, kRuns, {.cautious = cautious});
    Wide master = wide(before.master), m = wide(before.m), v = wide(before.v), sums(kCount, 1),
         m_sums(kCount, 1), v_sums(kCount, 1);
    const Wide grad = wide(before.grad), m0 = m, v0 = v;
    const oracle::GradientState state = {.norm = 1, .scale = 0.5, .finite = 1};
    std::vector<oracle::AdamwTensor> runs;
    for (const AdamwTensor& r : kRuns)
        runs.push_back({r.start, r.count, r.global, double(r.lr), double(r.decay)});
    const double b1 = double(real(0.9)), b2 = double(real(0.95));
    oracle::adamw_update({.param = nullptr,
                          .master = master.data(),
                          .m = m.data(),
                          .v = v.data(),
                          .grad = grad.data(),
                          .state = &state,
                          .beta1 = b1,
                          .beta2 = b2,
                          .eps = double(real(1e-8)),
                          .step = 3,
                          .stochastic = false,
                          .cautious = cautious,
                          .seed = 42},
                         runs.data(), runs.size());
    for (size_t i = 0; i < kCount; i++) {
        m_sums[i] = std::fabs(b1 * m0[i]) + std::fabs((1 - b1) * grad[i] * 0.5);
        v_sums[i] = b2 * v0[i] + (1 - b2) * grad[i] * grad[i] * 0.25;
        sums[i] = std::fabs(double(before.master[i])) +
                  0.02 / (1 - b1 * b1 * b1) * m_sums[i] / std::sqrt(v[i] / (1 - b2 * b2 * b2));
    }
    EXPECT_CLOSE(t.master, master, sums);
    EXPECT_CLOSE(t.m, m, m_sums);
    EXPECT_CLOSE(t.v, v, v_sums);
    for (const AdamwTensor& r : kRuns)
        for (size_t i = r.start; i < r.start + r.count && !kMasterIsParam; i++)
            EXPECT(double(t.param[i]) == double(floatX(t.master[i])), "param[%zu]", i);
    for (const size_t i : {size_t(40001), size_t(40007), size_t(40031), size_t(40040)})
        EXPECT(std::isnan(double(t.param[i])) && t.master[i] == before.master[i], "gap at %zu", i);
}

TEST(matches_the_cpu) {
    for (const bool cautious : {false, true}) expect_the_cpus(cautious);
}

// Equal masters give the bits of the CPU's rounding: a step that changes no master.
struct Rectangle { size_t cols, stride; };
TEST(stochastic_rounding_is_the_cpus) {
    for (const size_t start : {0, 1, 2, 3, 7})
        for (const auto& [cols, stride] :
             {Rectangle{SIZE_MAX, 0}, {64, 192}, {40, 100}, {5, 33}, {4990, 1}}) {
            const uint64_t global = cols == 64 ? 5 : cols == 40 ? uint64_t(1) << 34 : start;
            Tensors t(5000);
            std::fill(t.m.begin(), t.m.end(), real(0)), std::fill(t.grad.begin(), t.grad.end(), real(0));
            t.master[40] = real(INFINITY), t.master[41] = std::numeric_limits<real>::quiet_NaN();
            Tensors want = t;
            const Tensors got = updated(t, {{start, 4990, global, kLr, 0, cols, stride}},
                                        {.step = 7, .stochastic = true});
            const cpu::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
            const cpu::AdamwTensor run = {start, 4990, global, kLr, 0, cols, stride};
            const Lent lent(1);
            cpu::adamw_update({.param = kMasterIsParam ? nullptr : want.param.data(),
                               .master = want.master.data(),
                               .m = want.m.data(),
                               .v = want.v.data(),
                               .grad = want.grad.data(),
                               .state = &state,
                                      .beta1 = real(0.9),
                               .beta2 = real(0.95),
                               .eps = real(1e-8),
                               .step = 7,
                               .stochastic = true,
                               .seed = 42},
                              &run, 1);
            if (!kMasterIsParam)
                EXPECT(std::isnan(double(got.param[41])) && !std::isfinite(double(got.param[40])));
            want.param[41] = got.param[41], want.param[40] = got.param[40];
            EXPECT(same_bits(got.param, want.param), "start %zu, columns %zu", start, cols);
        }
}

TEST(cuts_and_order_change_no_bit) {
    const Tensors t(kCount);
    const auto cut_at = [&](size_t cut) {
        return updated(t, {{1, cut, 1000, kLr, real(0.1)},
                           {1 + cut, 40000 - cut, 1000 + cut, kLr, real(0.1)}},
                       {.stochastic = true});
    };
    const Tensors first = cut_at(40000);
    for (const size_t cut : {1, 16385, 39999}) EXPECT(cut_at(cut) == first, "cut at %zu", cut);
    in_every_order([&] { EXPECT(cut_at(40000) == first); });
}

TEST(many_tensors) {
    std::vector<AdamwTensor> runs;
    for (size_t i = 0; i < 1300; i++) runs.push_back({8 * i, 1 + i % 8, 8 * i, kLr, real(i % 2)});
    const Tensors before(8 * 1300), t = updated(before, runs, {});
    for (const AdamwTensor& r : runs)
        for (size_t i = r.start; i < r.start + 8; i++)
            EXPECT((t.m[i] != before.m[i]) == (i < r.start + r.count), "element %zu", i);
}

TEST(nothing_moves_where_the_gradient_is_not_finite) {
    const Tensors before(kCount);
    EXPECT(updated(before, kRuns, {.finite = 0, .scale = real(NAN)}) == before);
}

TEST(norm_and_clipping) {
    for (const size_t count : {size_t(1), size_t(1003), cuda::kNormBlock, 2 * cuda::kNormBlock + 77}) {
        const auto grad = normals<real>(count, 1);
        const size_t blocks = (count + cuda::kNormBlock - 1) / cuda::kNormBlock;
        const OnDevice on_device(grad), sums(poisoned<real>(blocks));
        const OnDevice loss(std::vector<double>{3}), squares(std::vector<double>{0});
        cuda::sum_of_squares(sums, on_device, count);
        cuda::sum_in_order(squares, sums, blocks);
        double want = 0;
        for (const real g : grad) want += double(g) * double(g);
        for (const real clip : {real(0), real(0.5), real(1e9)}) {
            const OnDevice state(std::vector<cuda::GradientState>(1));
            cuda::gradient_state(state, squares, loss, clip);
            const cuda::GradientState s = state.host()[0];
            EXPECT_NEAR(s.norm, std::sqrt(want), 1e-5 * std::sqrt(want));
            EXPECT_NEAR(s.scale, clip == real(0.5) ? std::min(1., 0.5 / std::sqrt(want)) : 1, 1e-5);
            EXPECT(s.finite == 1);
        }
    }
    for (const auto& [sum, loss, finite] :
         {std::tuple{4., 1., 1}, {NAN, 1., 0}, {INFINITY, 1., 0}, {4., NAN, 0}, {4., INFINITY, 0}}) {
        const OnDevice sums(std::vector<double>{sum});
        const OnDevice losses(std::vector<double>{loss});
        const OnDevice state(std::vector<cuda::GradientState>(1));
        cuda::gradient_state(state, sums, losses, 1);
        EXPECT(state.host()[0].finite == finite, "sum %g, loss %g", sum, loss);
    }
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] {
        updated(Tensors(40960), {{0, 30000, 0, kLr, 0}, {30016, 10944, 30000, kLr, 0}}, {.stochastic = true});
        updated(Tensors(40960), {{0, 40960, 0, kLr, 0}}, {});
    });
    const auto grad = normals<real>(cuda::kNormBlock + 8, 1);
    const OnDevice on_device(grad), sums(poisoned<real>(2));
    EXPECT_FLOORS([&] { cuda::sum_of_squares(sums, on_device, grad.size()); });
    const OnDevice state(std::vector<cuda::GradientState>(1));
    const OnDevice squares(std::vector<double>{4}), loss(std::vector<double>{3});
    EXPECT_FLOORS([&] { cuda::gradient_state(state, squares, loss, 1); });
}

}  // namespace PRECISION
