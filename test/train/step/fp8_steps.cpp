// Steps with run.products = fp8: what must not change a bit, and how far FP8 is from BF16.
#include "llmc/train/replicas/replay.h"
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

// With Muon's order of tensors, ranks of tp, and replicas of shards.
TEST(gathered_codes_are_those_of_whole_weights) {
    Config muon = fp8_config(3);
    muon.optimizer.kind = OptimizerKind::Muon;
    Config tp = fp8_config(4);
    tp.parallel.tp = 2;
    Config groups = fp8_config(4);
    groups.parallel.zero_group = 2;
    groups.memory.recompute = Recompute::Block;
    for (Config cfg : {muon, tp, groups}) {
        cfg.train.micro_batch = kZeroRows / (cfg.parallel.ranks / cfg.parallel.tp);
        cfg.parallel.zero = 1;
        const Outcome whole = run(cfg);
        cfg.parallel.zero = 3;
        EXPECT(whole == run(cfg), "%d ranks, tp = %d", cfg.parallel.ranks, cfg.parallel.tp);
    }
}

// Of a block's shard a rank sends a byte for each element to the others: in bf16 two, in fp64 eight. Beside
// these, once an update, the ends of the model, amaxes, and from the first rank biases and gains.
TEST(gathers_of_codes_move_a_byte_an_element) {
    for (const bool plain : {true, false}) {
        Config cfg = fp8_config(2, 3);
        if (plain) cfg.run.products = ProductKind::Bf16;
        run_threads(cfg, [&](Config c, const Mesh& mesh) {
            Tiny t(c, false, mesh);
            const Layout& layout = t.model.shards.layout;
            size_t blocks = 0, ends = 0, rest = 0;
            for (int b = 0; b < layout.count(); b++) {
                const bool of_block = t.model.shards.is_block(b);
                (of_block ? blocks : ends) += t.model.shards.shard(b);
                if (of_block) rest += layout.coded[size_t(b)];
            }
            std::vector<ZeroEvent> events;
            t.model.zero.events = &events;
            const Moved* moved = mesh.shard.group->moved;
            const size_t before = moved[kAllGather].bytes, sent = moved[kBroadcast].bytes;
            constexpr size_t steps = 2;
            train_steps(t, steps);
            t.model.zero.events = nullptr;
            const auto started = std::ranges::count(events, ZeroEvent::StartGather, &ZeroEvent::kind);
            const size_t gathers = size_t(started), amaxes = 4 * layout.block_at.size() * sizeof(float);
            const size_t want = gathers * blocks / layout.block_at.size() * (plain ? sizeof(floatX) : 1) +
                                steps * (ends * sizeof(floatX) + (plain ? 0 : amaxes));
            EXPECT(gathers > 2 * steps && moved[kAllGather].bytes - before == want, "%zu bytes, expected %zu",
                   moved[kAllGather].bytes - before, want);
            EXPECT(moved[kBroadcast].bytes - sent ==
                   (plain || mesh.shard.index ? 0 : steps * rest * sizeof(floatX)));
            return 0;
        });
    }
}

// A micro-batch is computed again by the codes that the step multiplies.
TEST(a_replay_in_fp8_has_the_bits_of_the_step) {
    for (const int zero : {0, 3})
        run_threads(fp8_config(2, zero), [](Config c, const Mesh& mesh) {
            Tiny t(c, false, mesh);
            Replay replay(t.model.pipeline);
            Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
            for (int s = 0; s < 2; s++) {
                replay.expect(t.set, uint64_t(s * t.model.pipeline.batch_rows), s);
                t.model.pipeline.run(data);
                EXPECT(!replay.compare().any(), "step %d, ZeRO %d", s, c.parallel.zero);
                enqueue_update(t.model, 1e-2, s);
            }
            return 0;
        });
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
