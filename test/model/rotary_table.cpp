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
        scaled.scaling = {true, c.factor, c.low, c.high, c.context};
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

// The first and the last pair of Llama 3.1 8B: theta 500,000, heads of 128 channels.
TEST(llama3_of_8B) {
    const auto f = rotary_frequencies({.used = true, .theta = 5e5, .scaling = {true, 8, 1, 4, 8192}}, 128);
    EXPECT_NEAR(f[0], 1, 0);
    EXPECT_NEAR(f[63], std::pow(5e5, -126. / 128) / 8, 1e-20);
}

}  // namespace PRECISION
