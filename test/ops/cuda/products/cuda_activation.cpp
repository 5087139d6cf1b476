// The activations as kernels of their own, and after products.
#include "test/cuda.h"

#include "llmc/ops/cuda/products/activation.h"
#include "test/activations.h"

namespace PRECISION {

struct Shape { int N, C, F, OC; };
static const Shape kShapes[] = {{1, 8, 8, 16}, {5, 40, 120, 24}, {33, 64, 256, 64}, {70, 24, 1032, 8}};

struct Results {
    std::vector<floatX> act, dpre;
    bool operator==(const Results& o) const { return same_bits(act, o.act) && same_bits(dpre, o.dpre); }
};

static size_t pre_count(Activation f, const Shape& s) {
    return size_t(s.N) * size_t(cuda::pre_width(f, s.F));
}

// size: deviation of pre.
static Results run(Activation f, const Shape& s, double size) {
    const OnDevice pre(normals<floatX>(pre_count(f, s), 1, size)),
        dact(normals<floatX>(size_t(s.N * s.F), 2)), act(poisoned<floatX>(dact.count)),
        dpre(poisoned<floatX>(pre.count));
    cuda::activation_forward(act, pre, f, s.N, s.F);
    cuda::activation_backward(dpre, dact, pre, f, s.N, s.F);
    if (!has_gate(f)) {
        cuda::activation_backward(dact, dact, pre, f, s.N, s.F);            // in place
        EXPECT(same_bits(dpre.host(), dact.host()), "%s in place", name_of(f).c_str());
    }
    return {act.host(), dpre.host()};
}

TEST(activations_match_their_formulas) {
    for (const Activation f : kActivations)
        for (const Shape& s : kShapes)
            for (const double size : {1., 8., 1000.}) {
                const Results r = run(f, s, size);
                const auto pre = normals<floatX>(pre_count(f, s), 1, size);
                const Wide dact = wide(normals<floatX>(size_t(s.N * s.F), 2)), sums = absolute(dact);
                const ExpectedActivations expected(f, pre, dact, sums, s.N, s.F);
                EXPECT_CLOSE(r.act, expected.act, expected.act_sums);
                EXPECT_CLOSE(r.dpre, expected.dpre, expected.dpre_sums);
            }
}

// The products around an activation are those of the op without it, bit for bit.
TEST(an_activation_follows_its_product) {
    const CudaScratch lent;
    for (const Activation f : kActivations)
        for (const Shape& s : kShapes)
            for (const bool with_bias : {true, false}) {
                const int P = cuda::pre_width(f, s.F);
                const OnDevice x(normals<floatX>(size_t(s.N * s.C), 1)),
                    w(normals<floatX>(size_t(P * s.C), 2, 0.3)), b(normals<floatX>(size_t(P), 3)),
                    dout(normals<floatX>(size_t(s.N * s.OC), 4)),
                    wproj(normals<floatX>(size_t(s.OC * s.F), 5, 0.3)),
                    act(poisoned<floatX>(size_t(s.N * s.F))), again(poisoned<floatX>(act.count)),
                    dact(poisoned<floatX>(act.count)), pre(poisoned<floatX>(pre_count(f, s))),
                    plain(poisoned<floatX>(pre.count)), dpre(poisoned<floatX>(pre.count)),
                    apart(poisoned<floatX>(pre.count));
                const floatX* bias = with_bias ? b.p : nullptr;
                cuda::matmul_activation_forward(act, pre, x, w, bias, f, s.N, s.C, s.F);
                cuda::matmul_forward(plain, x, w, bias, s.N, s.C, P);
                cuda::activation_forward(again, plain, f, s.N, s.F);
                EXPECT(same_bits(pre.host(), plain.host()) && same_bits(act.host(), again.host()),
                       "%s forward", name_of(f).c_str());
                const OnDevice db(std::vector<real>(size_t(P), 1)), db_apart(db.host());
                cuda::matmul_activation_backward_input(dpre, dact, dout, wproj, pre, f, s.N, s.F, s.OC, db);
                cuda::bias_backward(db_apart, dpre, s.N, P);
                EXPECT(same_bits(db.host(), db_apart.host()), "%s: bias", name_of(f).c_str());
                if (f == Activation::Gelu) continue;        // may be an epilogue, which rounds once
                cuda::matmul_backward_input(dact, dout, wproj, s.N, s.F, s.OC);
                cuda::activation_backward(apart, dact, pre, f, s.N, s.F);
                EXPECT(same_bits(dpre.host(), apart.host()), "%s backward", name_of(f).c_str());
            }
}

TEST(activations_of_what_is_not_finite) {
    const auto value = [](double v) { return floatX(real(v)); };
    constexpr int F = 8;
    std::vector<floatX> x(F, value(0));
    x[0] = value(NAN), x[1] = value(INFINITY), x[2] = value(-1e30), x[3] = value(1e30);
    for (const Activation f : kActivations) {
        std::vector<floatX> in = x;
        if (has_gate(f)) in.insert(in.end(), F, value(1));
        const OnDevice pre(in), one(std::vector<floatX>(F, value(1))), act(poisoned<floatX>(F)),
            d(poisoned<floatX>(in.size()));
        cuda::activation_forward(act, pre, f, 1, F);
        cuda::activation_backward(d, one, pre, f, 1, F);
        const auto a = act.host(), b = d.host();
        EXPECT(std::isnan(double(a[0])) && std::isinf(double(a[1])));
        EXPECT(double(a[2]) == 0 && double(a[3]) > 9e29);
        EXPECT(std::isnan(double(b[0])) && double(b[2]) == 0);
        if (f != Activation::Relu2) EXPECT(double(b[3]) == 1);
    }
}

TEST(order_changes_no_bit) {
    for (const Activation f : kActivations) {
        const Results first = run(f, kShapes[2], 2);
        in_every_order([&] { EXPECT(run(f, kShapes[2], 2) == first); });
    }
}

TEST(moves_no_more_than_its_floor) {
    EXPECT_FLOORS([&] {
        for (const Activation f : kActivations) run(f, kShapes[2], 1);
    });
}

}  // namespace PRECISION
