// Angles of rotary positions.
#include <cmath>

#include "llmc/model/rotary_table.h"
#include "test/test.h"

namespace PRECISION {

TEST(angles_fall_by_theta) {
    const auto all = rotary_frequencies({.used = true, .theta = 1e4}, 64);
    EXPECT(all.size() == 32, "%zu pairs", all.size());
    for (size_t i = 0; i < 32; i++) EXPECT_NEAR(all[i] / std::pow(1e4, -2. * double(i) / 64), 1, 1e-14);
    const auto half = rotary_frequencies({.used = true, .theta = 1024, .still = 0.5}, 128);
    for (size_t i = 0; i < 64; i++)
        EXPECT_NEAR(half[i], i < 32 ? std::pow(1024., -double(i) / 31) : 0, 1e-15);
}

// Case by case, with wavelengths, as Llama 3.1's authors and transformers have it.
static double llama3(double f, double factor, double low, double high, double context) {
    const double wave = 2 * M_PI / f;
    if (wave < context / high) return f;
    if (wave > context / low) return f / factor;
    const double smooth = (context / wave - low) / (high - low);
    return (1 - smooth) * f / factor + smooth * f;
}

TEST(llama3_scales_slow_turns) {
    struct Case { double theta, factor, low, high; int context; };
    for (const Case& c : {Case{5e5, 8, 1, 4, 8192}, Case{5e5, 32, 1, 4, 8192}, Case{1e2, 4, 0.5, 3, 20}}) {
        const RopeKind plain = {.used = true, .theta = c.theta};
        RopeKind scaled = plain;
        scaled.scaling = {RopeScalingKind::Llama3, c.factor, c.low, c.high, c.context};
        const auto before = rotary_frequencies(plain, 128), after = rotary_frequencies(scaled, 128);
        int kept = 0, divided = 0, between = 0;
        for (size_t i = 0; i < before.size(); i++) {
            EXPECT_NEAR(after[i] / llama3(before[i], c.factor, c.low, c.high, c.context), 1, 1e-14);
            const double ratio = after[i] / before[i];
            (ratio == 1 ? kept : std::fabs(ratio * c.factor - 1) < 1e-14 ? divided : between)++;
        }
        EXPECT(kept > 0 && divided > 0 && between > 0, "%d kept, %d divided, %d between", kept, divided,
               between);
    }
}

// Frequencies of 16 pairs, and the factor of cos and sin: transformers 5.24, modeling_rope_utils.py, in FP32.
TEST(scalings_are_those_of_transformers) {
    using enum RopeScalingKind;
    struct Golden { double theta; RopeScaling scaling; double attention; std::vector<double> f; };
    const Golden goldens[] = {
        {1e6, {.kind = Yarn, .factor = 4, .context = 32768}, 1.138629436111989,
         {1.0, 0.4216965, 0.1778279, 0.07498942, 0.03162278, 0.01333521, 0.004779901, 0.001659962, 0.00055,
          0.0001686786, 4.445699e-05, 1.874736e-05, 7.905694e-06, 3.333804e-06, 1.405853e-06, 5.928434e-07}},
        {1e4, {.kind = Yarn, .factor = 16, .context = 4096, .beta_fast = 16, .beta_slow = 2},
         1.2772588722239782,
         {1.0, 0.5623413, 0.3162278, 0.1778279, 0.1, 0.05623413, 0.03162278, 0.01444852, 0.00625, 0.002460243,
          0.0007905694, 0.0001111425, 6.25e-05, 3.514633e-05, 1.976424e-05, 1.111425e-05}},
        {1e2, {.kind = Yarn, .factor = 8, .context = 32, .attention = 1.5}, 1.5,
         {1.0, 0.6405346, 0.3983251, 0.2372043, 0.1317616, 0.06422471, 0.02222849, 0.01666902, 0.0125,
          0.009373677, 0.007029266, 0.005271206, 0.003952847, 0.002964217, 0.002222849, 0.001666902}},
        {5e5, {.kind = Linear, .factor = 4}, 1,
         {0.25, 0.1100917, 0.04848069, 0.02134928, 0.009401508, 0.00414011, 0.001823166, 0.0008028615,
          0.0003535534, 0.0001556931, 6.856205e-05, 3.019244e-05, 1.329574e-05, 5.854999e-06, 2.578346e-06,
          1.135418e-06}}};
    for (const Golden& g : goldens) {
        const RopeKind rope = {.used = true, .theta = g.theta, .scaling = g.scaling};
        const auto f = rotary_frequencies(rope, 32);
        for (size_t i = 0; i < 16; i++) EXPECT_NEAR(f[i] / g.f[i], 1, 1e-6);
        EXPECT_NEAR(rotary_attention({.rope = rope}), g.attention, 1e-15);
        EXPECT(rotary_attention({.rope = rope, .qk_norm = QkNorm::After}) == 1);
    }
}

// Of a table of `still` positions the m pairs that rotate take the place of D/2.
TEST(yarn_blends_by_the_pairs_that_rotate) {
    const RopeKind rope = {.used = true, .theta = 1024, .still = 0.5,
                           .scaling = {.kind = RopeScalingKind::Yarn, .factor = 4, .context = 256}};
    const auto f = rotary_frequencies(rope, 64);        // i(32) = 0.5, i(1) = 8.02 of 15
    for (size_t i = 0; i < 32; i++) {
        const double plain = i < 16 ? std::pow(1024., -double(i) / 15) : 0;
        const double kept = 1 - std::min(double(i) / 9, 1.);
        EXPECT_NEAR(f[i], plain * (kept + (1 - kept) / 4), 1e-15);
    }
}

// The first and the last pair of Llama 3.1 8B: theta 500,000, heads of 128 channels.
TEST(llama3_of_8B) {
    const auto f = rotary_frequencies(
        {.used = true, .theta = 5e5, .scaling = {RopeScalingKind::Llama3, 8, 1, 4, 8192}}, 128);
    EXPECT_NEAR(f[0], 1, 0);
    EXPECT_NEAR(f[63], std::pow(5e5, -126. / 128) / 8, 1e-20);
}

}  // namespace PRECISION
