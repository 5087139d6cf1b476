// Every product at awkward sizes against a naive sum in FP64, and what must not change a bit.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/numbers/math.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "llmc/ops/ops.h"
#include "test/compare.h"

namespace PRECISION {
namespace {

struct Shape { int N, C, OC; };
const std::vector<Shape> shapes = {{1, 8, 16},    {1, 768, 50},   {3, 5, 7},
                                   {7, 1600, 90}, {33, 64, 130},  {65, 193, 386},
                                   {257, 96, 34}, {385, 40, 300}, {130, 1600, 202},
                                   {1030, 9, 40}, {5, 24, 16500}};  // two panels; a long sum

// Values in (-scale, scale) by a hash of the index, rounded to T
template <class T>
std::vector<T> values(size_t count, uint64_t seed, double scale = 1) {
    std::vector<T> v(count);
    for (size_t i = 0; i < count; i++) {
        uint64_t h = (i + 1) * 0x9e3779b97f4a7c15 + seed * 0xd1b54a32d192ed03;
        h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9;
        h ^= h >> 29;
        v[i] = T(real((double(h >> 11) / double(1ull << 52) - 1) * scale));
    }
    return v;
}

// What a product has to be: sums in FP64, and the sums of the absolute products.
struct Expected {
    const char* what;
    Shape s;
    Wide sums = {}, absolute = {};
    void element(double sum, double of_absolute) {
        sums.push_back(sum), absolute.push_back(of_absolute + 1e-30);
    }
    template <class T> void compare_with(const std::vector<T>& got) const {
        const std::string shape = fmt::format("{} of N={} C={} OC={}", what, s.N, s.C, s.OC);
        expect_close(__FILE__, __LINE__, shape.c_str(), got, sums, absolute);
    }
};

double gelu_exact(double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}
double gelu_slope(double v) {
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v), t = std::tanh(u);
    return 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * v * v);
}

// Inputs of all products of a shape.
struct Case {
    Shape s;
    std::vector<floatX> x, w, bias, dout, pre;
    std::vector<real> dw, db;
    explicit Case(Shape s)
        : s(s),
          x(values<floatX>(size_t(s.N) * s.C, 1)),
          w(values<floatX>(size_t(s.OC) * s.C, 2)),
          bias(values<floatX>(s.OC, 3)),
          dout(values<floatX>(size_t(s.N) * s.OC, 4)),
          pre(values<floatX>(size_t(s.N) * s.C, 5, 4)),
          dw(values<real>(size_t(s.OC) * s.C, 6)),
          db(values<real>(s.OC, 7)) {}
};

void check_forward(const Case& c, bool bias) {
    const auto [N, C, OC] = c.s;
    std::vector<floatX> out(size_t(N) * OC), act(out.size()), pre(out.size());
    cpu::matmul_forward(out.data(), c.x.data(), c.w.data(), bias ? c.bias.data() : nullptr, N, C, OC);
    cpu::matmul_activation_forward(act.data(), pre.data(), c.x.data(), c.w.data(),
                                   bias ? c.bias.data() : nullptr, Activation::Gelu, N, C, OC);
    Expected forward{.what = "forward", .s = c.s}, gelu{.what = "GELU", .s = c.s};
    for (int n = 0; n < N; n++)
        for (int o = 0; o < OC; o++) {
            double sum = bias ? double(c.bias[o]) : 0, absolute = std::fabs(sum);
            for (int k = 0; k < C; k++) {
                const double p = double(c.x[size_t(n) * C + k]) * double(c.w[size_t(o) * C + k]);
                sum += p, absolute += std::fabs(p);
            }
            const size_t at = size_t(n) * OC + o;
            forward.element(sum, absolute);
            gelu.element(gelu_exact(double(pre[at])), std::fabs(double(pre[at])));
        }
    forward.compare_with(out), forward.compare_with(pre), gelu.compare_with(act);
    std::vector<floatX> again(act.size());
    cpu::activation_forward(again.data(), pre.data(), Activation::Gelu, N, OC);
    EXPECT(same_bits(act, again), "GELU of N=%d OC=%d recomputed", N, OC);
}

void check_input(const Case& c) {
    const auto [N, C, OC] = c.s;
    std::vector<floatX> dx(size_t(N) * C), dpre(dx.size());
    cpu::matmul_backward_input(dx.data(), c.dout.data(), c.w.data(), N, C, OC);
    std::vector<real> dbias = values<real>(size_t(C), 8), expected_dbias = dbias;
    cpu::matmul_activation_backward_input(dpre.data(), nullptr, c.dout.data(), c.w.data(), c.pre.data(),
                                          Activation::Gelu, N, C, OC, dbias.data());
    cpu::bias_backward(expected_dbias.data(), dpre.data(), N, C);
    EXPECT(same_bits(dbias, expected_dbias), "gradient of the bias behind GELU, N=%d C=%d", N, C);
    Expected input{.what = "backward_input", .s = c.s}, gelu{.what = "gelu_backward_input", .s = c.s};
    for (int n = 0; n < N; n++)
        for (int i = 0; i < C; i++) {
            double sum = 0, absolute = 0;
            for (int o = 0; o < OC; o++) {
                const double p = double(c.dout[size_t(n) * OC + o]) * double(c.w[size_t(o) * C + i]);
                sum += p, absolute += std::fabs(p);
            }
            const size_t at = size_t(n) * C + i;
            const double slope = gelu_slope(double(c.pre[at]));
            input.element(sum, absolute);
            gelu.element(sum * slope, absolute * (std::fabs(slope) + 1e-2));
        }
    input.compare_with(dx), gelu.compare_with(dpre);
}

void check_weight(const Case& c) {
    const auto [N, C, OC] = c.s;
    std::vector<real> dw = c.dw, db = c.db;
    cpu::matmul_backward_weight(dw.data(), c.dout.data(), c.x.data(), N, C, OC);
    cpu::bias_backward(db.data(), c.dout.data(), N, OC);
    std::vector<real> both = c.dw, of_bias = c.db;
    cpu::matmul_backward_weight_bias(both.data(), of_bias.data(), c.dout.data(), c.x.data(), N, C, OC);
    EXPECT(both == dw && of_bias == db, "N=%d C=%d OC=%d: the two at once are others", N, C, OC);
    Expected weight{.what = "backward_weight", .s = c.s}, bias{.what = "bias_backward", .s = c.s};
    for (int o = 0; o < OC; o++) {
        for (int i = 0; i < C; i++) {
            double sum = double(c.dw[size_t(o) * C + i]), absolute = std::fabs(sum);
            for (int n = 0; n < N; n++) {
                const double p = double(c.dout[size_t(n) * OC + o]) * double(c.x[size_t(n) * C + i]);
                sum += p, absolute += std::fabs(p);
            }
            weight.element(sum, absolute);
        }
        double sum = double(c.db[o]), absolute = std::fabs(sum);
        for (int n = 0; n < N; n++)
            sum += double(c.dout[size_t(n) * OC + o]),
                absolute += std::fabs(double(c.dout[size_t(n) * OC + o]));
        bias.element(sum, absolute);
    }
    weight.compare_with(dw), bias.compare_with(db);
}

TEST(matmul_against_naive_sums) {
    for (int threads : {1, 2}) {
        const Lent lent(threads);
        for (const Shape& s : shapes) {
            const Case c(s);
            check_forward(c, true);
            check_forward(c, false);
            check_input(c);
            check_weight(c);
        }
    }
}

// Every result of a shape, to compare bits. Tokens are cut into `parts`, like micro-batches.
std::vector<std::vector<real>> results(const Case& c, int threads, int parts) {
    const Lent lent(threads);
    const auto [N, C, OC] = c.s;
    std::vector<floatX> out(size_t(N) * OC), act(out.size()), pre(out.size()), dx(size_t(N) * C),
        dpre(dx.size());
    std::vector<real> dw = c.dw, db = c.db;
    for (int part = 0; part < parts; part++) {
        const int from = N * part / parts, n = N * (part + 1) / parts - from;
        if (n == 0) continue;
        const size_t in = size_t(from) * C, o = size_t(from) * OC;
        cpu::matmul_forward(out.data() + o, c.x.data() + in, c.w.data(), c.bias.data(), n, C, OC);
        cpu::matmul_activation_forward(act.data() + o, pre.data() + o, c.x.data() + in, c.w.data(),
                                       c.bias.data(), Activation::Gelu, n, C, OC);
        cpu::matmul_backward_input(dx.data() + in, c.dout.data() + o, c.w.data(), n, C, OC);
        cpu::matmul_activation_backward_input(dpre.data() + in, nullptr, c.dout.data() + o, c.w.data(),
                                              c.pre.data() + in, Activation::Gelu, n, C, OC);
        cpu::matmul_backward_weight(dw.data(), c.dout.data() + o, c.x.data() + in, n, C, OC);
        cpu::bias_backward(db.data(), c.dout.data() + o, n, OC);
    }
    std::vector<std::vector<real>> all;
    for (const auto* v : {&out, &act, &pre, &dx, &dpre}) all.emplace_back(v->begin(), v->end());
    all.push_back(dw), all.push_back(db);
    return all;
}

void expect_same(const std::vector<std::vector<real>>& a, const std::vector<std::vector<real>>& b, Shape s,
                 const char* what) {
    const char* names[] = {"out", "act", "pre", "dx", "dpre", "dw", "db"};
    for (size_t i = 0; i < a.size(); i++)
        EXPECT(same_bits(a[i], b[i]), "%s of N=%d C=%d OC=%d differs %s", names[i], s.N, s.C, s.OC, what);
}

// No other loops instead, which round otherwise.
TEST(matmul_with_little_scratch_is_an_error) {
    const Lent lent(1, 64);
    if (needs::product_forward(1, 300, 80, 40, false).scratch <= 64) return;     // oneDNN with AVX2
    const std::vector<floatX> x = values<floatX>(size_t(300) * 80, 1), w = values<floatX>(size_t(40) * 80, 2);
    std::vector<floatX> out(size_t(300) * 40);
    const Fatal f = test::fatal_of([&] {
        cpu::matmul_forward(out.data(), x.data(), w.data(), nullptr, 300, 80, 40);
    });
    EXPECT(std::string(f.what()).find("scratch needed, 64 are lent") != std::string::npos, "%s", f.what());
}

TEST(matmul_repeats_bit_for_bit) {
    for (const Shape& s : shapes) {
        const Case c(s);
        expect_same(results(c, 2, 1), results(c, 2, 1), s, "from run to run");
    }
}

// Else the part slow_bf16 of `make test-full` would look at what others do.
TEST_IF(getenv("ONEDNN_MAX_CPU_ISA") != nullptr, bf16_is_not_fast_on_avx2) {
    EXPECT(!strcmp(getenv("ONEDNN_MAX_CPU_ISA"), "AVX2") && !dnnl_computes(DType::BF16));
}

// Holds wherever the products are our own: in FP64 always.
TEST_IF(!dnnl_computes(dtype_of<floatX>), matmul_bits_do_not_depend_on_micro_batches_or_threads) {
    for (const Shape& s : shapes) {
        const Case c(s);
        const auto whole = results(c, 1, 1);
        for (int parts : {2, 3})
            expect_same(whole, results(c, 1, parts), s, "with the number of micro-batches");
        for (int threads : {2, 3, 5})
            expect_same(whole, results(c, threads, 1), s, "with the number of threads");
    }
}

// The loss is sum(dout * (x w^T + bias)); dpre's has gelu(pre) in place of x.
TEST_IF(sizeof(floatX) == 8, gradients_against_finite_differences) {
    const Lent lent(2);
    const Case c({5, 40, 9});
    const auto [N, C, OC] = c.s;
    std::vector<floatX> dx(size_t(N) * C), dpre(dx.size());
    std::vector<real> dw(size_t(OC) * C), db(OC);
    cpu::matmul_backward_input(dx.data(), c.dout.data(), c.w.data(), N, C, OC);
    cpu::matmul_activation_backward_input(dpre.data(), nullptr, c.dout.data(), c.w.data(), c.pre.data(),
                                          Activation::Gelu, N, C, OC);
    cpu::matmul_backward_weight(dw.data(), c.dout.data(), c.x.data(), N, C, OC);
    cpu::bias_backward(db.data(), c.dout.data(), N, OC);
    Case moved = c;
    const auto loss = [&](const std::vector<floatX>& x) {
        std::vector<floatX> out(size_t(N) * OC);
        cpu::matmul_forward(out.data(), x.data(), moved.w.data(), moved.bias.data(), N, C, OC);
        double sum = 0;
        for (size_t i = 0; i < out.size(); i++) sum += double(out[i]) * double(c.dout[i]);
        return sum;
    };
    const auto of_x = [&] { return loss(moved.x); };
    const auto of_pre = [&] {
        std::vector<floatX> act(moved.pre.size());
        cpu::activation_forward(act.data(), moved.pre.data(), Activation::Gelu, N, C);
        return loss(act);
    };
    const auto expect_slopes = [](std::vector<floatX>& x, const auto& dx, auto f) {
        for (size_t i = 0; i < x.size(); i++) EXPECT_NEAR(double(dx[i]), slope_of(x[i], f), 1e-8);
    };
    expect_slopes(moved.x, dx, of_x), expect_slopes(moved.w, dw, of_x), expect_slopes(moved.bias, db, of_x);
    expect_slopes(moved.pre, dpre, of_pre);
}

TEST(matmul_hands_nan_and_infinity_on) {
    const Lent lent(2);
    Case c({37, 70, 45});
    const auto [N, C, OC] = c.s;
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    c.x[size_t(3) * C + 7] = floatX(nan);
    c.x[size_t(4) * C + 7] = floatX(inf);
    c.dout[size_t(5) * OC + 2] = floatX(nan);
    c.pre[size_t(6) * C + 1] = floatX(nan);
    std::vector<floatX> act(size_t(N) * OC), pre(act.size()), dx(size_t(N) * C), dpre(dx.size());
    std::vector<real> dw(size_t(OC) * C), db(OC);
    cpu::matmul_activation_forward(act.data(), pre.data(), c.x.data(), c.w.data(), c.bias.data(),
                                   Activation::Gelu, N, C, OC);
    cpu::matmul_backward_input(dx.data(), c.dout.data(), c.w.data(), N, C, OC);
    cpu::matmul_activation_backward_input(dpre.data(), nullptr, c.dout.data(), c.w.data(), c.pre.data(),
                                          Activation::Gelu, N, C, OC);
    cpu::matmul_backward_weight(dw.data(), c.dout.data(), c.x.data(), N, C, OC);
    cpu::bias_backward(db.data(), c.dout.data(), N, OC);
    const auto finite = [](auto v) { return std::isfinite(double(v)); };
    for (int o = 0; o < OC; o++) {
        EXPECT(std::isnan(double(act[size_t(3) * OC + o])), "act[3, %d]", o);
        EXPECT(!finite(pre[size_t(4) * OC + o]), "pre[4, %d]", o);
        EXPECT(finite(act[size_t(2) * OC + o]), "act[2, %d]", o);
        EXPECT(finite(db[o]) == (o != 2), "db[%d]", o);
        for (int i = 0; i < C; i++)
            EXPECT(finite(dw[size_t(o) * C + i]) == (o != 2 && i != 7), "dw[%d, %d]", o, i);
    }
    for (int at = 0; at < N * C; at++) {
        const int n = at / C, i = at % C;
        EXPECT(finite(dx[size_t(at)]) == (n != 5), "dx[%d, %d]", n, i);
        EXPECT(finite(dpre[size_t(at)]) == (n != 5 && !(n == 6 && i == 1)), "dpre[%d, %d]", n, i);
    }
}

}  // namespace
}  // namespace PRECISION
