#include "llmc/base/numbers/math.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <cstdlib>
#include <limits>

#include "llmc/base/numbers/activations.h"
#include "llmc/base/numbers/exp2.h"
#include "llmc/base/numbers/simd.h"
#include "test/test.h"

static constexpr int kChunk = 4096;     // consecutive floats: of one sign and one exponent

struct Worst { double ulp; float x; };

// The error of y in units of the last place of the float nearest to `want`.
static double ulps(float y, double want) {
    if (want != want) return y != y ? 0 : INFINITY;
    const float nearest = float(want);
    if (nearest == y) return 0;
    const uint64_t exponent = std::max(std::bit_cast<uint32_t>(nearest) >> 23 & 255, uint32_t(1));
    const double error = std::fabs(double(y) - want) / std::bit_cast<double>((exponent - 150 + 1023) << 52);
    return error == error ? error : INFINITY;
}

// Tries every float, or every `stride`-th chunk. `exact`: the results known without libm.
template <class Ours, class Exact> static Worst worst_of_all(Ours ours, Exact exact, int stride) {
    Worst worst = {0, 0};
    #pragma omp parallel for schedule(dynamic, 256)
    for (int64_t chunk = 0; chunk < (int64_t(1) << 32) / kChunk; chunk += stride) {
        alignas(64) float x[kChunk], y[kChunk];
        for (int i = 0; i < kChunk; i++) x[i] = std::bit_cast<float>(uint32_t(chunk * kChunk + i));
        #pragma omp simd
        for (int i = 0; i < kChunk; i++) y[i] = ours(x[i]);
        Worst here = {0, 0};
        if (exact.known(x[0]) && exact.known(x[kChunk - 1])) {
            uint32_t most = 0;
            #pragma omp simd reduction(max : most)
            for (int i = 0; i < kChunk; i++) {
                const float want = exact(x[i]);
                const uint32_t a = std::bit_cast<uint32_t>(y[i]), b = std::bit_cast<uint32_t>(want);
                const uint32_t apart = a - b < b - a ? a - b : b - a, bad = y[i] != y[i] ? 0 : 1 << 30;
                const uint32_t e = want != want ? bad : apart;
                most = e > most ? e : most;
            }
            here = {double(most), x[0]};
        } else {
            for (int i = 0; i < kChunk; i++)
                if (const double e = ulps(y[i], exact(double(x[i]))); !(e <= here.ulp)) here = {e, x[i]};
        }
        #pragma omp critical
        if (!(here.ulp <= worst.ulp)) worst = here;
    }
    return worst;
}

// Below 2^-25 exp is 1 and from 2^7 on infinite or 0; tanh is x below 2^-13 and 1 from 2^4 on. By exp, tanh
// is right to 1e-12 there.
struct Exp {
    static bool known(float x) { return !(std::fabs(x) >= 0x1p-25f && std::fabs(x) < 0x1p7f); }
    double operator()(double x) const { return std::exp(x); }
    float operator()(float x) const { return x != x ? x : std::fabs(x) < 1 ? 1 : x > 0 ? INFINITY : 0; }
};
struct Tanh {
    static bool known(float x) { return !(std::fabs(x) >= 0x1p-13f && std::fabs(x) < 0x1p4f); }
    double operator()(double x) const {
        const double t = std::exp(-2 * std::fabs(x));
        return std::copysign((1 - t) / (1 + t), x);
    }
    float operator()(float x) const { return x != x || std::fabs(x) < 1 ? x : std::copysign(1.f, x); }
};

// Every float takes 11 s on 2 cores: that is for TEST_FULL=1.
static int stride() { return getenv("TEST_FULL") ? 1 : 16; }

TEST(exp_of_every_float) {
    const Worst w = worst_of_all([](float x) { return simd::vexp(x); }, Exp{}, stride());
    EXPECT(w.ulp <= 2, "%g ulp at %a", w.ulp, w.x);
    const Worst broken = worst_of_all([](float x) { return x == 1.5f ? 4.5f : simd::vexp(x); }, Exp{}, 16);
    EXPECT(broken.ulp > 2, "one wrong value goes unnoticed");
}

struct ExpNegative {
    static bool known(float x) { return Exp::known(x) || !(x >= -86); }
    double operator()(double x) const { return x > 0 ? 1 : x < -87 ? 0 : std::exp(x); }
    float operator()(float x) const { return x != x ? x : x > -1 ? 1 : x >= -87 ? std::exp(x) : 0; }
};

TEST(exp_of_every_negative_float) {
    const auto ours = [](float x) { return x > 0 ? 1 : simd::vexp_negative(x); };
    const Worst w = worst_of_all(ours, ExpNegative{}, stride());
    EXPECT(w.ulp <= 2, "%g ulp at %a", w.ulp, w.x);
    EXPECT(simd::vexp_negative(-87.01f) == 0 && simd::vexp_negative(-86.99f) > 0);
}

TEST(tanh_of_every_float) {
    const Worst w = worst_of_all([](float x) { return simd::vtanh(x); }, Tanh{}, stride());
    EXPECT(w.ulp <= 2, "%g ulp at %a", w.ulp, w.x);
    EXPECT(std::signbit(simd::vtanh(-0.f)) && !std::signbit(simd::vtanh(0.f)));
}

TEST(limits) {
    EXPECT(simd::vexp(INFINITY) == INFINITY && simd::vexp(-INFINITY) == 0 && std::isnan(simd::vexp(NAN)));
    EXPECT(simd::vexp(88.72284f) == INFINITY && simd::vexp(88.722f) < INFINITY);
    EXPECT(simd::vexp(-103.f) == 0x1p-149f && simd::vexp(-104.f) == 0);
    EXPECT(simd::vtanh(INFINITY) == 1 && simd::vtanh(-INFINITY) == -1 && std::isnan(simd::vtanh(NAN)));
}

static double exact_gelu(double x) {
    return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(gelu) {
    using Gelu = formulas::Gelu<simd::Math>;
    const auto slope_of = [](auto x) { return Gelu::tangent(x).slope; };
    for (double x = -12; x <= 12; x += 1. / 64) {
        EXPECT_NEAR(Gelu::of(float(x)), exact_gelu(x), 2e-7 * std::max(std::fabs(x), 1.));
        EXPECT_NEAR(Gelu::of(x), exact_gelu(x), 1e-14);
        const double h = 1e-5, slope = (exact_gelu(x + h) - exact_gelu(x - h)) / (2 * h);
        EXPECT_NEAR(slope_of(x), slope, 1e-9);
        EXPECT_NEAR(slope_of(float(x)), slope_of(x), 2e-6);
    }
    for (const float x : {1e4f, 1e15f, 1e30f}) {
        EXPECT(Gelu::of(x) == x && Gelu::of(-x) == 0);
        EXPECT(slope_of(x) == 1 && slope_of(-x) == 0 && slope_of(double(-x)) == 0);
    }
    EXPECT(std::isnan(Gelu::of(NAN)) && std::isnan(slope_of(NAN)));
}

TEST(sums_and_partial_vectors) {
    float x[200];
    for (int i = 0; i < 200; i++) x[i] = float(i + 1);
    for (int n = 0; n <= 200; n++) {
        const float s = simd::sum<float>(n, [&](int i, int left) { return simd::load(x + i, left) + 0.f; });
        EXPECT(s == n * (n + 1) / 2, "%d: %g", n, double(s));
    }
    for (int n = 1; n <= 40; n++) {
        bfloat16 out[64];
        for (bfloat16& o : out) o = bfloat16(-1.f);
        for (int i = 0; i < n; i += simd::width<float>) simd::store(out + i, simd::load(x + i, n - i), n - i);
        for (int i = 0; i < 64; i++)
            EXPECT(float(out[i]) == (i < n ? float(i + 1) : -1.f), "n %d i %d", n, i);
    }
}

TEST(bfloat16_vectors_round_as_scalars_do) {
    for (uint64_t u = 0; u < uint64_t(1) << 32; u += 65521) {
        float x[simd::width<float>];
        bfloat16 y[simd::width<float>];
        for (int i = 0; i < simd::width<float>; i++)
            x[i] = std::bit_cast<float>(uint32_t(u + uint64_t(i) * 0x8000));
        simd::store(y, simd::load(x));
        for (int i = 0; i < simd::width<float>; i++) EXPECT(y[i].bits == bfloat16(x[i]).bits, "%a", x[i]);
        const auto back = simd::load(y);
        for (int i = 0; i < simd::width<float>; i++)
            EXPECT(std::bit_cast<uint32_t>(float(back[i])) == uint32_t(y[i].bits) << 16, "%a", x[i]);
    }
}

// Of the harness: std::max would pass over NaN in any place.
TEST(nan_is_no_small_difference) {
    using test::largest_difference;
    const std::vector<double> good = {1, 2, 3};
    EXPECT(largest_difference({1, 2, 3.03}, good) > 0.009);
    EXPECT(largest_difference({1, 2, 3.03}, good) < 0.011);
    EXPECT(largest_difference(good, good) == 0 && largest_difference({1, 2}, good) == INFINITY);
    for (size_t i = 0; i < 3; i++) {
        std::vector<double> bad = good;
        bad[i] = NAN;
        EXPECT(largest_difference(bad, good) == INFINITY && largest_difference(good, bad) == INFINITY);
    }
}

// Of the harness: a precision misspelt, or another folder, is not a test that passes.
TEST(what_runs_no_test_fails) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    const auto none = test::run(self + " fp16");
    EXPECT(none.code == 1 && none.out.find("no test here has fp16") != none.out.npos, "'%s'",
           none.out.c_str());
    const auto elsewhere = test::run("cd / && " + self);
    EXPECT(elsewhere.code == 1 && elsewhere.err.find("the project's folder") != elsewhere.err.npos, "'%s'",
           elsewhere.err.c_str());
}

// Weights of attention: powers of 2 of what is at most 0.
TEST(powers_of_two_by_fma) {
    double worst = 0;
    for (double x = -126; x <= 0; x += 0x1p-12) {
        const double y = exp2_by_fma(float(x)), want = std::exp2(double(float(x)));
        worst = std::max(worst, std::fabs(y / want - 1));
    }
    EXPECT(worst > 2e-6 && worst < 3.1e-6, "off by %g", worst);
    for (int n = -126; n <= 0; n++) EXPECT(exp2_by_fma(float(n)) == std::ldexp(1.f, n), "2^%d", n);
    EXPECT(exp2_by_fma(-INFINITY) == 0 && exp2_by_fma(-1e30f) == 0 && std::isnan(exp2_by_fma(NAN)));
}
