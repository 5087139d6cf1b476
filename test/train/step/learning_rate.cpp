// Learning rates against closed forms written by hand.
#include <cmath>

#include "llmc/train/step/learning_rate.h"
#include "test/test.h"

static OptimizerConfig with(const char* schedule, int64_t warmup, double final_lr, int64_t decay = 0) {
    OptimizerConfig o;
    o.lr = 2e-3, o.schedule = schedule, o.warmup = warmup, o.final_lr = final_lr, o.decay = decay;
    return o;
}

static constexpr double kNear = 1e-15;

TEST(warmup_rises_to_the_peak) {
    for (const char* schedule : {"cosine", "linear", "wsd", "constant"}) {
        const OptimizerConfig o = with(schedule, 4, 0.1, 10);
        const double expected[] = {0.5e-3, 1e-3, 1.5e-3, 2e-3};
        for (int s = 0; s < 4; s++) EXPECT_NEAR(learning_rate(o, 100, s), expected[s], kNear);
        EXPECT(learning_rate(o, 100, 4) <= 2e-3 && learning_rate(o, 100, 4) > 1.9e-3,
               "%s goes on at the peak", schedule);
    }
}

// Steps 2 .. 11 of 12 decay: the k-th of 10 is k tenths of the way down, the last at the bottom.
TEST(linear_and_cosine_end_at_the_final_rate) {
    for (int k = 1; k <= 10; k++) {
        EXPECT_NEAR(learning_rate(with("linear", 2, 0.1), 12, 1 + k), 2e-3 * (1 - 0.09 * k), kNear);
        const double c = std::cos(std::acos(-1.0) * k / 10);
        EXPECT_NEAR(learning_rate(with("cosine", 2, 0.1), 12, 1 + k), 2e-3 * (0.55 + 0.45 * c), kNear);
    }
    EXPECT_NEAR(learning_rate(with("cosine", 2, 0.1), 12, 6), 1.1e-3, kNear);    // half way
    EXPECT_NEAR(learning_rate(with("linear", 2, 0), 12, 11), 0, kNear);
    EXPECT_NEAR(learning_rate(with("cosine", 2, 0), 12, 11), 0, kNear);
}

TEST(wsd_is_stable_then_decays) {
    const OptimizerConfig o = with("wsd", 3, 0.2, 4);
    for (int s = 2; s < 16; s++) EXPECT_NEAR(learning_rate(o, 20, s), 2e-3, kNear);
    for (int k = 1; k <= 4; k++) EXPECT_NEAR(learning_rate(o, 20, 15 + k), 2e-3 * (1 - 0.2 * k), kNear);
    const OptimizerConfig fifth = with("wsd", 0, 0, 0);  // the default decay: a fifth of the steps
    EXPECT_NEAR(learning_rate(fifth, 50, 39), 2e-3, kNear);
    EXPECT_NEAR(learning_rate(fifth, 50, 40), 1.8e-3, kNear);
    EXPECT_NEAR(learning_rate(fifth, 50, 49), 0, kNear);
    EXPECT_NEAR(learning_rate(fifth, 4, 3), 0, kNear);   // one step at least
    const OptimizerConfig left = with("wsd", 45, 0, 0);  // or the five that a long warmup leaves
    EXPECT_NEAR(learning_rate(left, 50, 44), 2e-3, kNear);
    EXPECT_NEAR(learning_rate(left, 50, 45), 1.6e-3, kNear);
    EXPECT_NEAR(learning_rate(left, 50, 49), 0, kNear);
}

TEST(constant_stays) {
    for (int s = 5; s < 100; s++) EXPECT_NEAR(learning_rate(with("constant", 5, 0.1), 100, s), 2e-3, 0);
}

TEST(without_warmup) {
    EXPECT_NEAR(learning_rate(with("constant", 0, 0), 10, 0), 2e-3, 0);
    EXPECT_NEAR(learning_rate(with("linear", 0, 0), 10, 0), 1.8e-3, kNear);
    EXPECT_NEAR(learning_rate(with("linear", 0, 0.5), 1, 0), 1e-3, kNear);
}

// A run that ends while it warms up.
TEST(warmup_longer_than_the_run) {
    for (const char* schedule : {"cosine", "linear", "wsd", "constant"})
        for (int64_t steps : {4, 8})
            for (int64_t s = 0; s < steps; s++)
                EXPECT_NEAR(learning_rate(with(schedule, 8, 0.1), steps, s), 2e-3 * double(s + 1) / 8, kNear);
}
