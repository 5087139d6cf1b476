#include "test/muon.h"

namespace PRECISION {

TEST(momentum_is_the_formula) {
    for (const int threads : {1, 2})
        for (const MuonShape& s : kMuonShapes) {
            const Lent lent(threads);
            MuonInputs in(s);
            const MuonMomentum want = momentum_of(in);
            auto u = poisoned<real>(in.m.size());
            cpu::GradientState state = {.norm = 1, .scale = real(kScale), .finite = 1};
            cpu::muon_momentum(u.data(), in.m.data(), in.grad.data(), &state, real(kMu), u.size());
            EXPECT_CLOSE(in.m, want.m, want.m_sums);
            EXPECT_CLOSE(u, want.u, want.u_sums);
            const std::vector<real> before = in.m;
            state.finite = 0, in.grad[0] = real(NAN);
            cpu::muon_momentum(u.data(), in.m.data(), in.grad.data(), &state, real(kMu), u.size());
            EXPECT(same_bits(in.m, before) && double(u[0]) == 0, "a step that is not finite has an effect");
        }
}

// Columns of three ranks beside each other.
TEST(normalized_columns_are_put_together) {
    const Lent lent(2);
    const int rows = 5, cols = 12, slices = 3;
    const auto u = normals<real>(size_t(rows * cols), 1);
    const double squares = 7;
    auto x = poisoned<floatX>(u.size());
    cpu::muon_normalize(x.data(), u.data(), &squares, rows, cols, slices);
    Wide want, sums;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            want.push_back(double(u[size_t((j / 4 * rows + i) * 4 + j % 4)]) / (1.01 * std::sqrt(7) + 1e-7));
            sums.push_back(std::fabs(want.back()));
        }
    EXPECT_CLOSE(x, want, sums);
}

TEST(linear_combinations) {
    const Lent lent(2);
    MuonInputs in(kMuonShapes[3]);
    Wide want, sums;
    for (size_t i = 0; i < in.x.size(); i++) {
        want.push_back(3 * double(in.x[i]) - 2 * double(in.y[i]));
        sums.push_back(3 * std::fabs(double(in.x[i])) + 2 * std::fabs(double(in.y[i])));
    }
    cpu::linear_combination(in.y.data(), 3, in.x.data(), -2, in.y.data(), in.y.size());
    EXPECT_CLOSE(in.y, want, sums);
}

TEST(gram_is_the_formula_and_symmetric) {
    for (const int threads : {1, 2})
        for (const GramShape& s : kGramShapes) {
            const Lent lent(threads);
            const int side = std::min(s.rows, s.cols);
            const auto x = normals<floatX>(size_t(s.rows * s.cols), 1);
            auto out = poisoned<floatX>(size_t(side * side));
            cpu::gram(out.data(), nullptr, x.data(), s.rows, s.cols, 1);
            const GramResult want = gram_of(x, s.rows, s.cols);
            EXPECT_CLOSE(out, want.values, want.sums);
            for (int i = 0; i < side; i++)
                for (int j = 0; j < i; j++) {
                    const floatX below = out[size_t(i * side + j)], above = out[size_t(j * side + i)];
                    EXPECT(double(below) == double(above), "%d x %d: (%d, %d)", s.rows, s.cols, i, j);
                }
        }
}

TEST(batches_are_products_of_each) {
    const Lent lent(2);
    const size_t count = 3;
    for (const GramShape& s : {GramShape{8, 8}, {24, 71}, {71, 24}}) {
        const size_t side = size_t(std::min(s.rows, s.cols)), all = size_t(s.rows * s.cols);
        const auto x = normals<floatX>(count * all, 1);
        auto a = poisoned<floatX>(count * side * side), square = poisoned<floatX>(side * side);
        auto out = poisoned<floatX>(count * all), product = poisoned<floatX>(all);
        cpu::gram(a.data(), nullptr, x.data(), s.rows, s.cols, int(count));
        cpu::muon_product(out.data(), a.data(), x.data(), s.rows, s.cols, int(count));
        for (size_t i = 0; i < count; i++) {
            cpu::gram(square.data(), nullptr, &x[i * all], s.rows, s.cols, 1);
            cpu::muon_product(product.data(), square.data(), &x[i * all], s.rows, s.cols, 1);
            EXPECT(!memcmp(&a[i * side * side], square.data(), side * side * sizeof(floatX)) &&
                       !memcmp(&out[i * all], product.data(), all * sizeof(floatX)),
                   "%d x %d: matrix %zu of the batch", s.rows, s.cols, i);
        }
    }
}

// Little more than half of the FLOPs where a side has many blocks.
TEST(gram_counts_the_blocks_it_computes) {
    const auto flops = [](int rows, int cols) {
        return walk_of({Target::Cpu, 1}, [&] {
            cpu::gram(nullptr, nullptr, nullptr, rows, cols, 1);
        }).flops();
    };
    EXPECT(flops(64, 64) == 2. * 64 * 64 * 64, "%g", flops(64, 64));
    EXPECT(flops(768, 2048) == 2. * 2048 * 128 * 128 * 21, "%g", flops(768, 2048));
    EXPECT(flops(2048, 768) == flops(768, 2048), "%g", flops(2048, 768));
}

static constexpr bool kMasterIsParam = sizeof(floatX) == sizeof(real);

static cpu::MuonUpdate update_of(MuonInputs& in, std::vector<floatX>& param, const MuonShape& s,
                                 const cpu::GradientState& state) {
    return {.param = kMasterIsParam ? nullptr : param.data(), .master = in.master.data(), .x = in.x.data(),
            .x_stride = s.x_stride, .state = &state, .rows = s.rows, .cols = s.cols, .lr = real(0.125),
            .stretch = 2, .decay = real(0.5), .step = 3, .stochastic = false, .cautious = false, .seed = 42,
            .global = 1001, .stride = s.stride};
}

TEST(weights_follow_the_formula) {
    const Lent lent(2);
    for (const MuonShape& s : kMuonShapes)
        for (const bool cautious : {false, true}) {
            MuonInputs in(s);
            const MuonWeights want = weights_of(in, s, 0.125, 2, 0.5, cautious);
            auto param = poisoned<floatX>(in.master.size());
            cpu::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
            cpu::MuonUpdate m = update_of(in, param, s, state);
            m.cautious = cautious;
            cpu::muon_update(m);
            EXPECT_CLOSE(in.master, want.master, want.sums);
            for (size_t i = 0; i < param.size() && !kMasterIsParam; i++)
                EXPECT(double(param[i]) == double(floatX(in.master[i])), "param[%zu]", i);
            const std::vector<real> before = in.master;
            state.finite = 0;
            cpu::muon_update(m);
            EXPECT(same_bits(in.master, before), "a step that is not finite has an effect");
        }
}

// The key of a weight's random bits is its index in the whole model, as in AdamW.
TEST_IF(sizeof(floatX) == 2, rounding_draws_the_words_of_adamw) {
    const Lent lent(2);
    for (const MuonShape& s : kMuonShapes) {
        MuonInputs in(s);
        auto param = poisoned<floatX>(in.master.size()), want = param;
        const cpu::GradientState state = {.norm = 1, .scale = 1, .finite = 1};
        cpu::MuonUpdate m = update_of(in, param, s, state);
        m.lr = 0, m.stochastic = true;
        cpu::muon_update(m);
        std::vector<real> zeros(in.master.size()), v = zeros, g = zeros;
        const cpu::AdamwTensor whole = {0, zeros.size(), 1001, 0, 0, size_t(s.cols), s.stride};
        cpu::adamw_update({.param = want.data(), .master = in.master.data(), .m = zeros.data(), .v = v.data(),
                           .grad = g.data(), .state = &state, .beta1 = 0, .beta2 = 0, .eps = 1, .step = 3,
                           .stochastic = true, .seed = 42}, &whole, 1);
        EXPECT(same_bits(param, want), "%d x %d", s.rows, s.cols);
    }
}

}  // namespace PRECISION
