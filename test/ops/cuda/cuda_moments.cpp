// Moments in bf16 on a GPU: the CPU's bits where the arithmetic is one product, its formula elsewhere.
#include "test/cuda.h"
#include "test/muon.h"

namespace PRECISION {

using cuda::AdamwTensor;

struct Stored {
    std::vector<real> master, grad;
    std::vector<floatX> param;
    std::vector<bfloat16> m, v;
    explicit Stored(size_t count)
        : master(normals<real>(count, 1)), grad(normals<real>(count, 4)), param(poisoned<floatX>(count)),
          m(normals<bfloat16>(count, 2, 0.1)), v(normals<bfloat16>(count, 3, 0.01)) {
        for (bfloat16& x : v) x = bfloat16(std::fabs(float(x)));
    }
    bool operator==(const Stored& o) const {
        return same_bits(master, o.master) && same_bits(param, o.param) && same_bits(m, o.m) &&
               same_bits(v, o.v);
    }
};

static constexpr bool kRounds = sizeof(floatX) == 2;
static constexpr real kLr = real(0.01);
static constexpr size_t kCount = 40047;
struct Settings {
    bool stochastic = kRounds;
    int finite = 1;
    real scale = real(0.5);
    bool masters = true;
};

// Of the backend's namespace: A is its Adamw.
template <class A, class State>
static A adamw_of(floatX* param, real* master, bfloat16* m, bfloat16* v, const real* grad,
                  const State* state, const Settings& s) {
    return {.param = kRounds ? param : nullptr, .master = s.masters ? master : nullptr,
            .m = m, .v = v, .grad = grad, .state = state, .beta1 = real(0.9), .beta2 = real(0.95),
            .eps = real(1e-8), .step = 7, .stochastic = s.stochastic, .seed = 42, .moments = DType::BF16};
}

static Stored updated(Stored t, const std::vector<AdamwTensor>& runs, const Settings& s = {}) {
    const OnDevice master(t.master), grad(t.grad);
    const OnDevice m(t.m), v(t.v);
    const OnDevice param(t.param);
    const OnDevice state(std::vector<cuda::GradientState>{{.norm = 1, .scale = s.scale, .finite = s.finite}});
    cuda::adamw_update(adamw_of<cuda::Adamw, cuda::GradientState>(param, master, m, v, grad, state, s),
                       runs.data(), runs.size());
    t.master = master.host(), t.m = m.host(), t.v = v.host(), t.param = param.host();
    return t;
}

static Stored updated_by_cpu(Stored t, const std::vector<AdamwTensor>& runs, const Settings& s = {}) {
    const cpu::GradientState state = {.norm = 1, .scale = s.scale, .finite = s.finite};
    std::vector<cpu::AdamwTensor> own;
    for (const AdamwTensor& r : runs)
        own.push_back({r.start, r.count, r.global, r.lr, r.decay, r.cols, r.stride});
    const Lent lent(1);
    cpu::adamw_update(adamw_of<cpu::Adamw, cpu::GradientState>(t.param.data(), t.master.data(), t.m.data(),
                                                               t.v.data(), t.grad.data(), &state, s),
                      own.data(), own.size());
    return t;
}

// Without a gradient a moment is one product, and its rounding is the CPU's to the bit: at any start, in
// rectangles, in packs and between them.
TEST(rounding_is_the_cpus) {
    const struct { size_t cols, stride; } rectangles[] = {
        {SIZE_MAX, 0}, {64, 192}, {40, 100}, {5, 33}, {4990, 1}};
    for (const size_t start : {0, 1, 2, 3, 7})
        for (const auto& [cols, stride] : rectangles) {
            const uint64_t global = cols == 40 ? uint64_t(1) << 34 : start;
            Stored t(5000);
            std::fill(t.grad.begin(), t.grad.end(), real(0));
            t.m[40] = bfloat16(INFINITY), t.v[41] = bfloat16(NAN);
            const std::vector<AdamwTensor> run = {{start, 4990, global, 0, 0, cols, stride}};
            const Stored got = updated(t, run), want = updated_by_cpu(t, run);
            EXPECT(same_bits(got.m, want.m), "m: start %zu, columns %zu", start, cols);
            EXPECT(std::isnan(float(got.v[41])), "%g", double(got.v[41]));
            Stored a = got, b = want;
            a.v[41] = b.v[41] = bfloat16(0.f);
            EXPECT(same_bits(a.v, b.v), "v: start %zu, columns %zu", start, cols);
        }
}

// Without masters: the bits of a step whose masters are the weights.
TEST_IF(kRounds, weights_without_masters_are_rounded_as_with) {
    for (const size_t cols : {SIZE_MAX, size_t(40), size_t(5)}) {
        Stored t(5000);
        for (size_t i = 0; i < t.master.size(); i++)
            t.param[i] = floatX(t.master[i]), t.master[i] = real(t.param[i]);
        const size_t stride = cols == SIZE_MAX ? 0 : 100;
        const std::vector<AdamwTensor> runs = {{3, 4990, 7, kLr, real(0.1), cols, stride}};
        const Stored with = updated(t, runs), without = updated(t, runs, {.masters = false});
        EXPECT(same_bits(with.param, without.param) && same_bits(with.m, without.m) &&
               same_bits(with.v, without.v), "columns %zu", cols);
        EXPECT(!same_bits(t.param, without.param) && same_bits(t.master, without.master), "weights move");
    }
}

// A step with moments in full: weights and first moments.
static auto step_in_full(const std::vector<floatX>& start, const AdamwTensor& run, bool masters) {
    const size_t count = start.size();
    const OnDevice param(start);
    const OnDevice master(std::vector<real>(start.begin(), start.end())), g(normals<real>(count, 4)),
        m(normals<real>(count, 2, 0.1)), v(std::vector<real>(count, real(0.01)));
    const OnDevice state(std::vector<cuda::GradientState>{{.norm = 1, .scale = 1, .finite = 1}});
    cuda::adamw_update({.param = param, .master = masters ? master.p : nullptr, .m = m.p, .v = v.p,
                        .grad = g, .state = state, .beta1 = real(0.9), .beta2 = real(0.95),
                        .eps = real(1e-8), .step = 7, .stochastic = true, .seed = 42}, &run, 1);
    return std::pair(param.host(), m.host());
}

TEST_IF(kRounds, moments_in_full_without_masters) {
    const auto start = normals<floatX>(4090, 1);
    const AdamwTensor run = {1, start.size() - 2, 5, kLr, real(0.1)};
    const auto [with, m] = step_in_full(start, run, true);
    const auto [without, m2] = step_in_full(start, run, false);
    EXPECT(same_bits(with, without) && same_bits(m, m2) && !same_bits(with, start));
}

// Weights after a step of Muon.
static std::vector<floatX> muon_step(const MuonShape& s, bool masters) {
    const MuonInputs in(s);
    const std::vector<floatX> start(in.master.begin(), in.master.end());
    const OnDevice param(start), x(in.x);
    const OnDevice master(std::vector<real>(start.begin(), start.end()));
    const OnDevice state(std::vector<cuda::GradientState>{{.norm = 1, .scale = 1, .finite = 1}});
    cuda::muon_update({.param = param, .master = masters ? master.p : nullptr, .x = x,
                       .x_stride = s.x_stride, .state = state, .rows = s.rows, .cols = s.cols,
                       .lr = real(0.125), .stretch = 2, .decay = real(0.5), .step = 3,
                       .stochastic = masters, .cautious = true, .seed = 42, .global = 1001,
                       .stride = s.stride});
    return param.host();
}

TEST_IF(kRounds, muons_weights_without_masters) {
    for (const MuonShape& s : kMuonShapes)
        EXPECT(same_bits(muon_step(s, true), muon_step(s, false)), "%d x %d", s.rows, s.cols);
}

static const std::vector<AdamwTensor> kRuns = {{0, 1, 100, kLr, 0}, {1, 40000, 1000, 2 * kLr, real(0.1)},
                                               {40008, 17, 90001, kLr, 0}, {40025, 0, 1, kLr, 0},
                                               {40032, 8, 90018, kLr, 0}};

// With gradients a moment may be the next bfloat16, where the last bit of a sum decides. Few are.
TEST(updates_are_the_cpus) {
    for (const bool stochastic : {false, kRounds}) {
        const Stored before(kCount), got = updated(before, kRuns, {.stochastic = stochastic}),
                     want = updated_by_cpu(before, kRuns, {.stochastic = stochastic});
        Wide master = wide(want.master), sums;
        for (size_t i = 0; i < kCount; i++) sums.push_back(std::fabs(double(before.master[i])) + 0.1);
        EXPECT_CLOSE(got.master, master, sums);
        size_t other = 0;
        for (size_t i = 0; i < kCount; i++) other += got.m[i].bits != want.m[i].bits;
        for (size_t i = 0; i < kCount; i++) other += got.v[i].bits != want.v[i].bits;
        EXPECT(other < kCount / 1000, "%zu moments of %zu differ", other, 2 * kCount);
        for (const size_t i : {size_t(40001), size_t(40007), size_t(40031), size_t(40040)})
            EXPECT(got.m[i].bits == before.m[i].bits && got.v[i].bits == before.v[i].bits, "gap at %zu", i);
    }
}

TEST(cuts_and_order_change_no_bit) {
    const Stored t(kCount);
    const auto cut_at = [&](size_t cut) {
        return updated(t, {{1, cut, 1000, kLr, real(0.1)},
                           {1 + cut, 40000 - cut, 1000 + cut, kLr, real(0.1)}});
    };
    const Stored first = cut_at(40000);
    for (const size_t cut : {1, 16385, 39999}) EXPECT(cut_at(cut) == first, "cut at %zu", cut);
    in_every_order([&] { EXPECT(cut_at(40000) == first); });
}

TEST(nothing_moves_where_the_gradient_is_not_finite) {
    const Stored before(kCount);
    EXPECT(updated(before, kRuns, {.finite = 0, .scale = real(NAN)}) == before);
}

struct Momentum { std::vector<bfloat16> m; std::vector<real> u; };

static Momentum momentum_of(const MuonShape& s, const std::vector<real>& grad, int finite = 1) {
    const size_t count = size_t(s.rows * s.cols);
    const OnDevice m(Stored(count).m);
    const OnDevice g(grad), u(poisoned<real>(count));
    const OnDevice state(std::vector<cuda::GradientState>{{.norm = 1, .scale = real(0.5), .finite = finite}});
    cuda::muon_rounded_momentum({.u = u, .m = m, .grad = g, .state = state, .mu = real(kMu), .rows = s.rows,
                                 .cols = s.cols, .step = 3, .seed = 42, .global = 1001, .stride = s.stride});
    return {m.host(), u.host()};
}

TEST(momentum_is_rounded_as_the_cpus) {
    for (const MuonShape& s : kMuonShapes) {
        const size_t count = size_t(s.rows * s.cols);
        const std::vector<real> zeros(count);
        Stored want(count);
        auto u = poisoned<real>(count);
        const cpu::GradientState state = {.norm = 1, .scale = real(0.5), .finite = 1};
        const Lent lent(1);
        cpu::muon_rounded_momentum({.u = u.data(), .m = want.m.data(), .grad = zeros.data(), .state = &state,
                                    .mu = real(kMu), .rows = s.rows, .cols = s.cols, .step = 3, .seed = 42,
                                    .global = 1001, .stride = s.stride});
        const Momentum got = momentum_of(s, zeros);
        EXPECT(same_bits(got.m, want.m) && same_bits(got.u, u), "%d x %d", s.rows, s.cols);
        MuonInputs in(s);
        const Stored before(count);
        in.m.assign(before.m.begin(), before.m.end());
        const MuonMomentum formula = momentum_of(in);
        EXPECT_CLOSE(momentum_of(s, in.grad).u, formula.u, formula.u_sums);
        const Momentum still = momentum_of(s, in.grad, 0);
        EXPECT(same_bits(still.m, before.m) && double(still.u[0]) == 0, "it moves without a finite gradient");
    }
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([] {
        updated(Stored(40960), {{0, 30000, 0, kLr, 0}, {30016, 10944, 30000, kLr, 0}});
        updated(Stored(40960), {{0, 40960, 0, kLr, 0}}, {.stochastic = false});
        if (kRounds) updated(Stored(40960), {{0, 40960, 0, kLr, 0}}, {.masters = false});
        momentum_of({64, 512, 512, 512}, std::vector<real>(64 * 512));
        if (!kRounds) return;
        step_in_full(normals<floatX>(40960, 1), {0, 40960, 0, kLr, 0}, false);
        muon_step({64, 512, 512, 512}, false);
    });
}

}  // namespace PRECISION
