// Moments in bf16 (optimizer.state), and weights in bf16 without masters (optimizer.master): the update is
// that of the values as they are stored. Each is rounded up or down by chance, without a bias, by random bits
// of its own place in the model.
#include "test/muon.h"

namespace PRECISION {

using cpu::AdamwTensor;

struct Stored {
    std::vector<real> master, grad;
    std::vector<floatX> param;
    std::vector<bfloat16> m, v;
    cpu::GradientState state = {.norm = 1, .scale = real(0.5), .finite = 1};
    cpu::Adamw a = {.param = nullptr, .master = nullptr, .m = nullptr, .v = nullptr, .grad = nullptr,
                    .state = nullptr, .beta1 = real(0.9), .beta2 = real(0.95), .eps = real(1e-8), .step = 3,
                    .stochastic = sizeof(floatX) == 2, .seed = 42, .moments = DType::BF16};

    explicit Stored(size_t count)
        : master(normals<real>(count, 1)), grad(normals<real>(count, 4)), param(poisoned<floatX>(count)),
          m(normals<bfloat16>(count, 2, 0.1)), v(normals<bfloat16>(count, 3, 0.01)) {
        for (bfloat16& x : v) x = bfloat16(std::fabs(float(x)));
    }
    void update(const std::vector<AdamwTensor>& runs) {
        a.param = sizeof(floatX) == sizeof(real) ? nullptr : param.data();
        a.master = master.data(), a.m = m.data(), a.v = v.data(), a.grad = grad.data(), a.state = &state;
        cpu::adamw_update(a, runs.data(), runs.size());
    }
    bool operator==(const Stored& o) const {
        return same_bits(master, o.master) && same_bits(param, o.param) && same_bits(m, o.m) &&
               same_bits(v, o.v);
    }
};

static constexpr real kLr = real(0.01);
static constexpr size_t kCount = 40030;
static const std::vector<AdamwTensor> kRuns = {
    {0, 1, 100, kLr, 0}, {1, 40000, 1000, 2 * kLr, real(0.1)}, {40008, 17, 90001, kLr, 0}};

static float up_from(bfloat16 x) {
    x.bits++;
    return float(x);
}
static bfloat16 down_from(float x) {
    bfloat16 result;
    result.bits = uint16_t(std::bit_cast<uint32_t>(x) >> 16);
    return result;
}

// Each is one of the two bfloat16 beside the exact value, and in the mean they are neither above nor below.
static void expect_rounded(const std::vector<bfloat16>& stored, const std::vector<real>& exact,
                           const char* what) {
    double error = 0;
    for (size_t i = 0; i < stored.size(); i++) {
        const float low = float(down_from(float(exact[i]))), high = up_from(down_from(float(exact[i])));
        EXPECT(float(stored[i]) == low || float(stored[i]) == high, "%s[%zu] = %g, exact %g", what, i,
               double(stored[i]), double(exact[i]));
        error += (double(stored[i]) - double(exact[i])) / double(high - low);
    }
    EXPECT_NEAR(error / double(stored.size()), 0, 0.01);        // a standard deviation is 0.002 at most
}

TEST(moments_are_rounded_up_or_down_without_a_bias) {
    const Lent lent(2);
    Stored t(kCount);
    std::vector<real> m(t.m.begin(), t.m.end()), v(t.v.begin(), t.v.end()), master = t.master;
    std::vector<floatX> param = t.param;
    cpu::Adamw exact = t.a;
    exact.param = sizeof(floatX) == sizeof(real) ? nullptr : param.data();
    exact.master = master.data(), exact.m = m.data(), exact.v = v.data(), exact.grad = t.grad.data();
    exact.state = &t.state, exact.moments = dtype_of<real>;
    t.update(kRuns);
    cpu::adamw_update(exact, kRuns.data(), kRuns.size());
    EXPECT(same_bits(t.master, master) && same_bits(t.param, param), "the update is another");
    expect_rounded(t.m, m, "m");
    expect_rounded(t.v, v, "v");
}

// A quarter of the distance to the next bfloat16: m, v and weights are rounded up by chances of their own.
TEST_IF(sizeof(floatX) == 2, moments_and_weights_draw_apart) {
    const Lent lent(2);
    using Ups = std::vector<int>;
    const auto ups = [](int64_t step, uint64_t seed, uint64_t global) {
        Stored t(40000);
        const bfloat16 one(1.f);
        for (size_t i = 0; i < 40000; i++) t.master[i] = real(1 + 0.25 / 128), t.m[i] = t.v[i] = one;
        for (real& g : t.grad) g = 2 + real(0.25) / 64;         // times the scale, and half of it: an eighth
        t.a.beta1 = t.a.beta2 = real(0.5), t.a.step = step, t.a.seed = seed;
        t.update({{0, 40000, global, 0, 0}});
        std::vector<Ups> all(3);
        for (size_t i = 0; i < 40000; i++) {
            all[0].push_back(float(t.param[i]) != 1), all[1].push_back(float(t.m[i]) != 1);
            all[2].push_back(float(t.v[i]) != 1);
        }
        return all;
    };
    const auto share = [](const Ups& a, const Ups& b) {
        double sum = 0;
        for (size_t i = 0; i < a.size(); i++) sum += a[i] * b[i];
        return sum / double(a.size());
    };
    const auto first = ups(1, 42, 0);
    const double expected[] = {0.25, 0.125, 0.25};
    for (size_t i = 0; i < 3; i++) {
        EXPECT_NEAR(share(first[i], first[i]), expected[i], 0.01);
        for (size_t k = 0; k < i; k++)
            EXPECT_NEAR(share(first[i], first[k]), expected[i] * expected[k], 0.008);
    }
    for (const auto& other : {ups(2, 42, 0), ups(1, 43, 0), ups(1, 42, 40000)})
        for (const size_t i : {1, 2})
            EXPECT_NEAR(share(first[i], other[i]), expected[i] * expected[i], 0.008);
}

// The same elements in other runs, on other threads, and as columns of a wider matrix.
TEST(moments_round_by_their_place_in_the_model) {
    std::vector<Stored> runs;
    for (const int threads : {1, 3})
        for (const size_t cut : {40000, 1, 16385}) {
            const Lent lent(threads);
            runs.emplace_back(kCount);
            runs.back().update({{1, cut, 1000, kLr, real(0.1)},
                                {1 + cut, 40000 - cut, 1000 + cut, kLr, real(0.1)}});
        }
    for (const Stored& t : runs) EXPECT(t == runs[0]);
    const Lent lent(2);
    const size_t rows = 301, stride = 96, first = 37, cols = 33;
    Stored whole(rows * stride), part(rows * cols);
    for (size_t i = 0; i < rows * cols; i++) {
        const size_t at = i / cols * stride + first + i % cols;
        part.m[i] = whole.m[at], part.v[i] = whole.v[at];
        part.grad[i] = whole.grad[at], part.master[i] = whole.master[at];
    }
    whole.update({{0, rows * stride, 1000, kLr, 0}});
    part.update({{0, rows * cols, 1000 + first, kLr, 0, cols, stride}});
    EXPECT(same_bits(part.m, columns(whole.m, stride, first, first + cols)) &&
           same_bits(part.v, columns(whole.v, stride, first, first + cols)), "columns differ from the whole");
}

TEST(moments_stay_where_the_gradient_is_not_finite) {
    const Lent lent(2);
    Stored t(kCount), before(kCount);
    t.state.finite = 0, t.state.scale = real(NAN);
    t.update(kRuns);
    EXPECT(t == before);
}

static cpu::RoundedMomentum momentum_in(Stored& t, std::vector<real>& u, const MuonShape& s) {
    return {.u = u.data(), .m = t.m.data(), .grad = t.grad.data(), .state = &t.state, .mu = real(0.9),
            .rows = s.rows, .cols = s.cols, .step = 3, .seed = 42, .global = 1001, .stride = s.stride};
}

// Muon: the direction is that of the formula, and the momentum is rounded as AdamW's m of the same elements.
TEST(momentum_rounds_as_first_moments) {
    for (const int threads : {1, 2})
        for (const MuonShape& s : kMuonShapes) {
            const Lent lent(threads);
            const size_t count = size_t(s.rows * s.cols);
            Stored muon(count), adamw(count);
            std::vector<real> exact(muon.m.begin(), muon.m.end());
            auto u = poisoned<real>(count), want = u;
            cpu::muon_momentum(want.data(), exact.data(), muon.grad.data(), &muon.state, real(0.9), count);
            cpu::muon_rounded_momentum(momentum_in(muon, u, s));
            adamw.update({{0, count, 1001, kLr, 0, size_t(s.cols), s.stride}});
            for (size_t i = 0; i < count; i++) EXPECT_NEAR(u[i], want[i], 1e-5);
            EXPECT(same_bits(muon.m, adamw.m), "%d x %d: the momentum", s.rows, s.cols);
            const std::vector<bfloat16> before = muon.m;
            muon.state.finite = 0, muon.grad[0] = real(NAN);
            cpu::muon_rounded_momentum(momentum_in(muon, u, s));
            EXPECT(same_bits(muon.m, before) && double(u[0]) == 0, "a step that is not finite has an effect");
        }
}

// Weights without masters: the bits of a step whose masters are the weights, rounded stochastically.
TEST_IF(sizeof(floatX) == 2, weights_without_masters_are_rounded_as_with) {
    for (const DType moments : {DType::BF16, dtype_of<real>}) {
        const Lent lent(3);
        const std::vector<AdamwTensor> runs = {{0, 1, 100, kLr, 0},
                                               {1, 40000, 1000, kLr, real(0.1), 96, 200}};
        Stored with(kCount), without(kCount);
        std::vector<real> m(with.m.begin(), with.m.end()), v(with.v.begin(), with.v.end()), m2 = m, v2 = v;
        for (size_t i = 0; i < kCount; i++) {
            without.param[i] = floatX(without.master[i]);
            with.master[i] = real(without.param[i]);
        }
        const auto update = [&](Stored& t, real* master, std::vector<real>& first,
                                std::vector<real>& second) {
            t.a.param = t.param.data(), t.a.master = master, t.a.grad = t.grad.data(), t.a.state = &t.state;
            t.a.m = t.m.data(), t.a.v = t.v.data(), t.a.moments = moments;
            if (moments == dtype_of<real>) t.a.m = first.data(), t.a.v = second.data();
            cpu::adamw_update(t.a, runs.data(), runs.size());
        };
        update(with, with.master.data(), m, v);
        without.a.stochastic = false;           // which is of weights with masters
        update(without, nullptr, m2, v2);
        for (size_t i = 0; i < 40001; i++)
            EXPECT(double(with.param[i]) == double(without.param[i]), "weight %zu", i);
        EXPECT(same_bits(with.m, without.m) && same_bits(with.v, without.v) && m == m2 && v == v2, "moments");
    }
}

TEST_IF(sizeof(floatX) == 2, muons_weights_without_masters_are_rounded_as_with) {
    const Lent lent(2);
    for (const MuonShape& s : kMuonShapes) {
        MuonInputs in(s);
        std::vector<floatX> with(in.master.size()), without;
        for (real& w : in.master) without.push_back(floatX(w)), w = real(without.back());
        cpu::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
        cpu::MuonUpdate m = {.param = with.data(), .master = in.master.data(), .x = in.x.data(),
                             .x_stride = s.x_stride, .state = &state, .rows = s.rows, .cols = s.cols,
                             .lr = real(0.125), .stretch = 2, .decay = real(0.5), .step = 3,
                             .stochastic = true, .cautious = true, .seed = 42, .global = 1001,
                             .stride = s.stride};
        cpu::muon_update(m);
        m.param = without.data(), m.master = nullptr, m.stochastic = false;
        cpu::muon_update(m);
        EXPECT(same_bits(with, without), "%d x %d", s.rows, s.cols);
        state.finite = 0;
        cpu::muon_update(m);
        EXPECT(same_bits(with, without), "%d x %d: a step that is not finite has an effect", s.rows, s.cols);
    }
}

}  // namespace PRECISION
