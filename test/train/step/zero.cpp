// ZeRO stages agree, for any overlap and any placement of state. Under a sanitizer, which takes ten times as
// long, on fewer numbers of ranks.
#include "test/zero.h"

namespace PRECISION {

TEST(stages_agree) {
    const Outcome one = run(zero_config(1, 0));
    for (const int ranks : test::kSanitizer ? std::vector{3} : std::vector{2, 3, 4})
        for (const int micro_batch : {1, kZeroRows / ranks}) {
            std::vector<Outcome> o;
            for (int zero = 0; zero < 4; zero++) o.push_back(run(zero_config(ranks, zero, micro_batch)));
            EXPECT(o[0] == o[1], "%d ranks, micro-batch %d: ZeRO 0 and 1 differ", ranks, micro_batch);
            EXPECT(o[2] == o[3], "%d ranks, micro-batch %d: ZeRO 2 and 3 differ", ranks, micro_batch);
            if (micro_batch > 1)
                EXPECT(o[1] == o[2], "%d ranks, one micro-batch: ZeRO 1 and 2 differ", ranks);
            if (!kIsFp64) continue;
            expect_near("ZeRO 1 and 2", o[2], o[1], 1e-12);
            expect_near("many ranks and one", o[0], one, 1e-12);
        }
}

// Shards in groups of 1, 2 or 4 of 4 ranks.
TEST(groups_agree) {
    std::vector<Outcome> whole;
    for (const int group : test::kSanitizer ? std::vector{0, 2} : std::vector{0, 4, 2, 1})
        for (int zero = 0; zero < 4; zero++) {
            Config cfg = zero_config(4, zero, 3);
            cfg.parallel.zero_group = group;
            const Outcome o = run(cfg);
            if (whole.size() < 4) { whole.push_back(o); continue; }
            if (group == 4) EXPECT(o == whole[size_t(zero)], "a group of all: ZeRO %d differs", zero);
            if (kIsFp64) expect_near("groups", o, whole[size_t(zero)], 1e-12);
        }
}

// Muon's matrices are dealt out over the shards, or with the whole state updated by every rank.
TEST(muon_trains_the_same) {
    Outcome one;
    for (const int ranks : test::kSanitizer ? std::vector{1, 3} : std::vector{1, 2, 3}) {
        std::vector<Outcome> o;
        for (int zero = 0; zero < 4; zero++) {
            Config cfg = zero_config(ranks, zero);
            cfg.optimizer.kind = OptimizerKind::Muon, cfg.optimizer.momentum_warmup = 2;
            cfg.optimizer.matrix_decay = 0.1;
            o.push_back(run(cfg));
            if (ranks == 1 && zero == 0) one = o[0];
            if (kIsFp64) expect_near("Muon", o.back(), one, 1e-10);
            cfg.memory.offload = "optimizer";
            EXPECT(run(cfg) == o.back(), "%d ranks, ZeRO %d: offloading changes the result", ranks, zero);
            cfg.memory.offload = "none", cfg.parallel.overlap = false;
            EXPECT(run(cfg, 300) == o.back(), "%d ranks, ZeRO %d: overlap changes the result", ranks, zero);
        }
        EXPECT(o[0] == o[1] && o[2] == o[3], "%d ranks: ZeRO 0 and 1, or 2 and 3, differ", ranks);
    }
}

// Collectives that take their time, at random, beside the computation or not: not a bit changes.
TEST(overlap_changes_no_bit) {
    for (const int replicas : {1, 3})           // 3 replicas cut no multiple of 64 elements
        for (int zero = 0; zero < 4; zero++) {
            Config cfg = zero_config(3, zero, 1);
            cfg.parallel.zero_group = 3 / replicas;
            const Outcome plain = run(cfg);
            EXPECT(run(cfg, 300) == plain, "ZeRO %d: delays change the result", zero);
            cfg.parallel.overlap = false;
            EXPECT(run(cfg, 300) == plain, "ZeRO %d: overlap changes the result", zero);
        }
}

TEST(offloaded_state_gives_the_same) {
    for (const int ranks : {1, 3})
        for (int zero = 0; zero < 4; zero += ranks == 1 ? 4 : 1) {
            Config cfg = zero_config(ranks, zero);
            const Outcome plain = run(cfg);
            cfg.memory.offload = "optimizer";
            EXPECT(run(cfg) == plain, "%d ranks, ZeRO %d: offloading changes the result", ranks, zero);
        }
}

// Chunks that end inside tensors: a model of more than one chunk per bucket.
TEST(offloaded_state_in_several_chunks) {
    if (test::kThreadSanitizer) return test::skip("one rank of one thread");
    Config cfg = zero_config(1, 0, 12);
    cfg.model.channels = 288, cfg.model.layers = 2, cfg.model.vocab = 4000;
    cfg.optimizer.stochastic_rounding = true;
    const Outcome plain = run(cfg);
    cfg.memory.offload = "optimizer";
    EXPECT(run(cfg) == plain, "offloading changes the result");
}

// The key of a weight's random bits is where it is in the whole model.
TEST_IF(kIsBf16, stochastic_rounding_knows_no_ranks) {
    std::vector<Outcome> o;
    for (int zero = 0; zero < 4; zero++) {
        Config cfg = zero_config(3, zero, 4);
        cfg.optimizer.stochastic_rounding = true;
        o.push_back(run(cfg));
        EXPECT(o.back() == o[0], "ZeRO %d differs", zero);
    }
}

// A gradient that is not finite, on one rank: no rank takes the step.
TEST(a_skipped_step_changes_nothing_anywhere) {
    for (int zero = 0; zero < 4; zero++)
        run_threads(zero_config(3, zero), [](Config c, const Mesh& mesh) {
            Tiny t(c, false, mesh);
            train_steps(t, 1);
            const auto before = all_weights(t);
            Loader data(t.set, c.train.micro_batch, 0, mesh.dp.index, mesh.dp.size);
            t.model.pipeline.run(data);
            if (mesh.rank == 1) t.model.shards.grad_shard(2)[3] = real(NAN);
            enqueue_update(t.model, 1e-2, 1);
            const StepResult f = t.model.statistics->read();
            EXPECT(!f.finite && std::isnan(f.norm), "ZeRO %d: norm %g passes", c.parallel.zero, f.norm);
            EXPECT(all_weights(t) == before, "ZeRO %d: the weights have changed", c.parallel.zero);
            return 0;
        });
}

}  // namespace PRECISION
