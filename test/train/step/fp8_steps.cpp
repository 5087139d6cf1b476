// Steps with run.products = fp8: what must not change a bit, and how far FP8 is from BF16.
#include "test/zero.h"

namespace PRECISION {

// Sizes that are multiples of 16 on each of two ranks of tp.
static Config fp8_config(int ranks = 1, int zero = 0) {
    Config cfg = zero_config(ranks, zero);
    cfg.model = {.layers = 3, .heads = 2, .channels = 48, .context = 16, .vocab = 67, .init = "random"};
    cfg.model.head_channels = 32;
    cfg.train.batch_tokens = 12 * 16;
    cfg.run.products = ProductKind::Fp8;
    return cfg;
}

TEST(recompute_levels_have_the_same_bits_in_fp8) {
    std::vector<Outcome> o;
    for (const Recompute level : values_of<Recompute>()) {
        Config cfg = fp8_config();
        cfg.memory.recompute = level;
        o.push_back(run(cfg));
    }
    EXPECT(o[0] == o[1] && o[0] == o[2], "losses %.9g, %.9g, %.9g", o[0].losses[2], o[1].losses[2],
           o[2].losses[2]);
}

// Codes of weights are kept for a step, or made for each gathered block.
TEST(zero_stages_have_the_same_bits_in_fp8) {
    std::vector<Outcome> o;
    for (int zero = 0; zero < 4; zero++) o.push_back(run(fp8_config(2, zero)));
    EXPECT(o[0] == o[1] && o[2] == o[3], "ZeRO 0 and 1, or 2 and 3, differ");
    Config once = fp8_config(2, 1);
    once.train.micro_batch = 6;
    const Outcome one = run(once);
    once.parallel.zero = 3;
    EXPECT(one == run(once), "ZeRO 1 and 3 of one micro-batch differ");
}

// Stages of a pipeline and interleaved chunks compute the same products.
TEST(pipelines_have_the_same_bits_in_fp8) {
    Config cfg = fp8_config(2);
    cfg.train.micro_batch = 3;
    const Outcome both = run(cfg);
    cfg.parallel.pp = 2, cfg.train.micro_batch = 3;
    const Outcome stages = run(cfg);
    Config one = fp8_config();
    one.train.micro_batch = 3;
    const Outcome alone = run(one);
    EXPECT(stages.losses == alone.losses, "%.9g, expected %.9g", stages.losses[2], alone.losses[2]);
    EXPECT_NEAR(both.losses[2] / alone.losses[2], 1, kIsFp64 ? 1e-12 : 1e-3);
}

// Ranks of tp have parts of tensors, and the scales of the whole tensors.
TEST(tp_is_near_one_rank_in_fp8) {
    const Outcome one = run(fp8_config());
    Config cfg = fp8_config(2);
    cfg.parallel.tp = 2;
    const Outcome two = run(cfg);
    for (size_t i = 0; i < one.losses.size(); i++)
        EXPECT_NEAR(two.losses[i] / one.losses[i], 1, kIsFp64 ? 1e-12 : 5e-3);
}

// After updates the codes are of the new weights: made anew they are the same.
TEST(codes_follow_the_weights) {
    Tiny t(fp8_config());
    train_steps(t, 2);
    TokenBatch batch;
    load_batch(batch, t.set, 0, t.cfg.train.micro_batch);
    const Batch b{.tokens = batch.tokens.data(), .targets = batch.targets.data(), .B = batch.B,
                  .T = t.cfg.model.context};
    const auto loss = [&] {
        t.model.gpt.clear_loss();
        t.model.zero.begin_step({0, 1, 2});
        t.model.gpt.forward(t.model.zero, b);
        t.model.gpt.head_loss(t.model.zero, b);
        return *t.model.gpt.loss;
    };
    const double kept = loss();
    for (CodedBlocks::Slot& slot : t.model.gpt.coded.slots) slot.block = -1;
    EXPECT(kept == loss(), "codes are of older weights");
}

// FP8 has an effect, and a small one.
TEST(fp8_is_near_bf16) {
    Config cfg = fp8_config();
    const Outcome coded = run(cfg);
    cfg.run.products = ProductKind::Bf16;
    const Outcome plain = run(cfg);
    EXPECT(coded.losses != plain.losses);
    for (size_t i = 0; i < plain.losses.size(); i++) {
        EXPECT_NEAR(coded.losses[i] / plain.losses[i], 1, 1e-2);
        EXPECT_NEAR(coded.norms[i] / plain.norms[i], 1, 0.1);
    }
}

}  // namespace PRECISION
