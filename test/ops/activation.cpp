// The activations of the feed-forward layer, in and beside their products.
#include "test/activations.h"

#include "llmc/ops/cpu/products/dnnl.h"

namespace PRECISION {
namespace {

struct Shape { int N, C, F, OC; };
constexpr Shape kShapes[] = {{1, 8, 16, 8}, {3, 5, 7, 11}, {7, 33, 90, 40}, {65, 193, 130, 97},
                             {1030, 9, 70, 12}};

struct Case {
    Activation f;
    Shape s;
    int P;
    std::vector<floatX> x, w, bias, dout, wproj;
    Case(Activation f, Shape s)
        : f(f), s(s), P(cpu::pre_width(f, s.F)),
          x(normals<floatX>(size_t(s.N) * size_t(s.C), 1)),
          w(normals<floatX>(size_t(P) * size_t(s.C), 2, 0.5)),
          bias(normals<floatX>(size_t(P), 3)),
          dout(normals<floatX>(size_t(s.N) * size_t(s.OC), 4)),
          wproj(normals<floatX>(size_t(s.OC) * size_t(s.F), 5)) {}
};

struct Results {
    std::vector<floatX> pre, act, dpre;
    bool operator==(const Results& o) const {
        return same_bits(pre, o.pre) && same_bits(act, o.act) && same_bits(dpre, o.dpre);
    }
};

// The tokens in `parts`, like micro-batches.
Results run(const Case& c, int threads, bool bias, int parts = 1) {
    const Lent lent(threads);
    const auto [N, C, F, OC] = c.s;
    Results r = {poisoned<floatX>(size_t(N) * size_t(c.P)), poisoned<floatX>(size_t(N) * size_t(F)),
                 poisoned<floatX>(size_t(N) * size_t(c.P))};
    for (int part = 0; part < parts; part++) {
        const int from = N * part / parts, n = N * (part + 1) / parts - from;
        const auto row = [from](auto& v, int width) { return v.data() + size_t(from) * size_t(width); };
        cpu::matmul_activation_forward(row(r.act, F), row(r.pre, c.P), row(c.x, C), c.w.data(),
                                       bias ? c.bias.data() : nullptr, c.f, n, C, F);
        cpu::matmul_activation_backward_input(row(r.dpre, c.P), nullptr, row(c.dout, OC), c.wproj.data(),
                                              row(r.pre, c.P), c.f, n, F, OC);
    }
    return r;
}

// dout w, and the sums of its absolute products.
std::pair<Wide, Wide> input_gradient(const Case& c) {
    const auto [N, C, F, OC] = c.s;
    Wide dact(size_t(N) * size_t(F)), sums(dact.size());
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++)
            for (int j = 0; j < F; j++) {
                const double p = double(c.dout[size_t(n * OC + o)]) * double(c.wproj[size_t(o * F + j)]);
                dact[size_t(n * F + j)] += p, sums[size_t(n * F + j)] += std::fabs(p);
            }
    return {dact, sums};
}

TEST(activations_match_their_formulas) {
    for (const Activation f : kActivations)
        for (const Shape& s : kShapes)
            for (const bool bias : {true, false}) {
                const Case c(f, s);
                const Results r = run(c, 2, bias);
                std::vector<floatX> pre(r.pre.size()), again(r.act.size());
                const Lent lent(2);
                cpu::matmul_forward(pre.data(), c.x.data(), c.w.data(), bias ? c.bias.data() : nullptr, s.N,
                                    s.C, c.P);
                const Wide expected_pre = wide(pre);
                double largest = 0;
                for (const double v : expected_pre) largest = std::max(largest, std::fabs(v));
                EXPECT_CLOSE(r.pre, expected_pre, Wide(pre.size(), 10 * largest));
                const auto [dact, sums] = input_gradient(c);
                const ExpectedActivations expected(f, r.pre, dact, sums, s.N, s.F);
                EXPECT_CLOSE(r.act, expected.act, expected.act_sums);
                EXPECT_CLOSE(r.dpre, expected.dpre, expected.dpre_sums);
                cpu::activation_forward(again.data(), r.pre.data(), f, s.N, s.F);
                EXPECT(same_bits(r.act, again), "%s recomputed", name_of(f).c_str());
            }
}

TEST(activations_repeat_bit_for_bit) {
    for (const Activation f : kActivations)
        for (const Shape& s : kShapes) EXPECT(run(Case(f, s), 2, true) == run(Case(f, s), 2, true));
}

// Holds wherever the products are our own: in FP64 always.
TEST_IF(!dnnl_computes(dtype_of<floatX>), activation_bits_do_not_depend_on_micro_batches_or_threads) {
    for (const Activation f : kActivations)
        for (const Shape& s : kShapes) {
            const Case c(f, s);
            const Results whole = run(c, 1, true);
            EXPECT(run(c, 1, true, 3) == whole && run(c, 3, true) == whole, "%s", name_of(f).c_str());
        }
}

// The loss is sum(dout * (f(pre) wproj^T)).
TEST_IF(sizeof(floatX) == 8, activation_gradients_are_slopes) {
    const Lent lent(2);
    for (const Activation f : kActivations) {
        const Case c(f, {5, 8, 20, 9});
        const Results r = run(c, 2, true);
        std::vector<floatX> pre = r.pre, act(r.act.size()), out(c.dout.size());
        const auto loss = [&] {
            cpu::activation_forward(act.data(), pre.data(), f, c.s.N, c.s.F);
            cpu::matmul_forward(out.data(), act.data(), c.wproj.data(), nullptr, c.s.N, c.s.F, c.s.OC);
            double sum = 0;
            for (size_t i = 0; i < out.size(); i++) sum += double(out[i]) * double(c.dout[i]);
            return sum;
        };
        for (size_t i = 0; i < pre.size(); i++) EXPECT_NEAR(double(r.dpre[i]), slope_of(pre[i], loss), 1e-8);
    }
}

// Far from 0 a gate is open or shut and its slope 1 or 0; NaN goes on.
// What the backward pass of a gate takes for f(x) is what forward computed.
TEST(a_tangent_has_the_value_of_forward) {
    struct Math {
        static double exp(double x) { return std::exp(x); }
        static double exp_negative(double x) { return std::exp(x); }
        static double quotient(double x, double y) { return x / y; }
    };
    for (const Activation f : kActivations)
        for (const double x : {-1e4, -50., -30.5, -3., -0.1, 0., 0.2, 7., 30.5, 50., 1e4})
            with_formula<Math>(f, [&](auto formula, auto) {
                const double value = formula.of(x), also = formula.tangent(x).value;
                EXPECT(std::fabs(also - value) <= 1e-12 * std::fabs(value) + 1e-300, "%s(%g): %g and %g",
                       name_of(f).c_str(), x, value, also);
            });
}

TEST(activations_of_extreme_values) {
    const Lent lent(1);
    const auto value = [](double v) { return floatX(real(v)); };
    const std::vector<floatX> x = {value(NAN), value(1e4), value(-1e4), value(0), value(-0.5)};
    const int F = int(x.size());
    for (const Activation f : kActivations) {
        std::vector<floatX> pre = x, act(x.size()), one = {value(1)}, ones(x.size(), value(1));
        if (has_gate(f)) pre.insert(pre.end(), x.size(), value(2));
        std::vector<floatX> dpre(pre.size());
        cpu::activation_forward(act.data(), pre.data(), f, 1, F);
        cpu::matmul_activation_backward_input(dpre.data(), nullptr, one.data(), ones.data(), pre.data(), f, 1,
                                              F, 1);
        const std::string text = name_of(f);
        const char* const name = text.c_str();
        EXPECT(std::isnan(double(act[0])) && std::isnan(double(dpre[0])), "%s of NaN", name);
        for (size_t i = 1; i < x.size(); i++) {
            const Activated a = activated(f, double(x[i]), 2);
            const double tolerance = sizeof(floatX) == 2 ? 1e-2 : 1e-5;
            EXPECT(std::fabs(double(act[i]) - a.y) <= tolerance * std::fabs(a.y), "%s: %g", name,
                   double(act[i]));
            EXPECT(std::fabs(double(dpre[i]) - a.dx) <= tolerance * std::fabs(a.dx), "%s: slope %g", name,
                   double(dpre[i]));
        }
    }
}

}  // namespace
}  // namespace PRECISION
