// Whole training steps: changes that must keep every bit, and values that must never reach the weights.
#include "test/tiny.h"

namespace PRECISION {

using test::largest_difference;

// ---------------------------------------------------------------------------------------------------------
// what a step does not depend on

TEST(two_runs_are_the_same) {
    const Trace a = train_steps(tiny_config(), 3), b = train_steps(tiny_config(), 3);
    EXPECT(a == b, "losses differ by %.3g", largest_difference(a.losses, b.losses));
    Config other = tiny_config();
    other.run.seed = 2;
    EXPECT(!(train_steps(other, 3) == a), "another seed gives the same run");
}

// A step's rows at once, in three chunks of logits, or cut, with a chunk of logits each.
TEST(micro_batches_do_not_matter) {
    Config cfg = tiny_config();
    cfg.train.batch_tokens = 12 * 37, cfg.train.micro_batch = 12;
    const int rows = 4 * 37 + 20;
    const Trace whole = train_steps(cfg, 3, rows);
    for (int B : {4, 2, 1}) {
        cfg.train.micro_batch = B;
        const Trace t = train_steps(cfg, 3, rows);
        if (kIsFp64)
            EXPECT(t == whole, "micro-batch %d: losses differ by %.3g, norms by %.3g", B,
                   largest_difference(t.losses, whole.losses), largest_difference(t.norms, whole.norms));
        EXPECT(largest_difference(t.losses, whole.losses) < (kIsBf16 ? 1e-3 : 1e-6),
               "micro-batch %d: losses differ by %.3g", B, largest_difference(t.losses, whole.losses));
        EXPECT(largest_difference(t.norms, whole.norms) < (kIsBf16 ? 2e-2 : 1e-4),
               "micro-batch %d: norms differ by %.3g", B, largest_difference(t.norms, whole.norms));
    }
}

// kind: of kKinds
static void expect_recomputed(size_t kind) {
    for (const auto& [threads, B] : {std::pair{1, 8}, {2, 2}}) {
        set_threads(threads);
        Config cfg = tiny_config();
        cfg.model = of_kind(kKinds[kind], cfg.model);
        cfg.train.micro_batch = B;
        const Trace kept = train_steps(cfg, 3);
        for (const char* level : {"selective", "block"}) {
            cfg.memory.recompute = level;
            const Trace t = train_steps(cfg, 3);
            EXPECT(t == kept, "kind %zu, %s, %d threads, %d rows: losses differ by %.3g, norms by %.3g", kind,
                   level, threads, B, largest_difference(t.losses, kept.losses),
                   largest_difference(t.norms, kept.norms));
        }
    }
    set_threads(1);
}

TEST(recomputation_changes_no_bit) {
    for (const size_t kind : {0, 5, 7, 8, 10, 12}) expect_recomputed(kind);
}

TEST_IF(!kIsBf16, threads_do_not_matter) {
    const Trace one = train_steps(tiny_config(), 3);
    for (int threads : {2, 3}) {
        set_threads(threads);
        const Trace t = train_steps(tiny_config(), 3);
        if (kIsFp64)
            EXPECT(t == one, "%d threads: losses differ by %.3g", threads,
                   largest_difference(t.losses, one.losses));
        EXPECT(largest_difference(t.losses, one.losses) < 1e-6, "%d threads: losses differ by %.3g", threads,
               largest_difference(t.losses, one.losses));
    }
    set_threads(1);
}

// Everything together.
TEST_IF(kIsFp64, neither_rows_at_once_nor_threads_nor_recomputation_change_a_bit) {
    Config cfg = tiny_config();
    cfg.train.batch_tokens = 12 * 37, cfg.train.micro_batch = 12;
    const Trace whole = train_steps(cfg, 3);
    for (const auto& [threads, B, level] :
         {std::tuple{2, 4, "selective"}, {3, 1, "block"}, {2, 12, "block"}, {3, 2, "none"}}) {
        set_threads(threads), cfg.train.micro_batch = B, cfg.memory.recompute = level;
        EXPECT(train_steps(cfg, 3) == whole, "%d threads, %d rows at once, %s", threads, B, level);
    }
    set_threads(1);
}

// Evaluating before every step leaves the run as it is: losses are not carried over (a bug of llm.c), weights
// and order stay.
TEST(evaluation_does_not_disturb_training) {
    const Trace plain = train_steps(tiny_config(), 3);
    Tiny t(tiny_config());
    Trace trace;
    Pipeline& pipeline = t.model.pipeline;
    Loader data(t.set, t.cfg.train.micro_batch, 0);
    for (int s = 0; s < 3; s++) {
        pipeline.evaluate(t.set, 2, {});
        train_step(t, data, s, trace);
    }
    trace.keep_state(t);
    EXPECT(trace == plain, "losses differ by %.3g", largest_difference(trace.losses, plain.losses));
}

// ---------------------------------------------------------------------------------------------------------
// the loss

TEST(initial_loss_is_ln_v) {
    const Trace t = train_steps(tiny_config(), 1);
    EXPECT_NEAR(t.losses[0], std::log(66.0), 0.05);
}

TEST(the_loss_falls) {
    Config cfg = tiny_config();
    cfg.optimizer.lr = 1e-2, cfg.optimizer.schedule = "constant";
    const Trace t = train_steps(cfg, 40);
    EXPECT(t.losses.back() < t.losses[0] - 0.8, "%.3f after %.3f", t.losses.back(), t.losses[0]);
}

// The mean over rows, for any division into rows, micro-batches and chunks of logits (two of 16 rows).
TEST(evaluation_takes_every_row_once) {
    Config cfg = tiny_config();
    cfg.train.batch_tokens = 2 * 37, cfg.train.steps = 0;
    double reference = 0;
    for (int B : {1, 4, 16}) {
        cfg.train.micro_batch = B;
        Tiny t(cfg);
        t.shake();
        t.set_logit_rows(512);
        const std::string path = test::temporary_directory() + "/val.bin";
        test::write_shard(path, test::random_ids(17 * 37 + 20, 66, 5));
        const Dataset val = open_dataset("data.val", {{path}}, 37, 1, false);
        Pipeline& pipeline = t.model.pipeline;
        if (B == 1) {
            for (uint64_t row = 0; row < 17; row++) {
                TokenBatch batch;
                load_batch(batch, val, row, 1);
                const Batch b{
                    .tokens = batch.tokens.data(), .targets = batch.targets.data(), .B = 1, .T = 37};
                t.model.gpt.clear_loss();
                t.model.gpt.forward(t.model.zero, b);
                t.model.gpt.head_loss(t.model.zero, b);
                reference += *t.model.gpt.loss / (17 * 37);
                if (row == 5)
                    EXPECT_NEAR(pipeline.evaluate(val, 3, {})->loss, reference * 17 / 6,
                                kIsBf16 ? 1e-3 : 1e-5);
            }
        }
        const double tolerance = kIsFp64 ? 1e-12 : kIsBf16 ? 1e-2 : 1e-5;
        EXPECT_NEAR(pipeline.evaluate(val, 0, {})->loss, reference, tolerance);
        EXPECT_NEAR(pipeline.evaluate(val, 100, {})->loss, reference, tolerance);
    }
}

// Targets without text add no nats: two halves of the ids share the sum of all losses.
TEST(bits_per_byte_divide_by_the_targets_text) {
    Tiny t(tiny_config());
    Pipeline& pipeline = t.model.pipeline;
    std::vector<uint16_t> bytes(66);
    std::vector<uint16_t> others(66);
    for (size_t i = 0; i < 66; i++) bytes[i] = uint16_t(i % 5), others[i] = i % 5 ? 0 : 3;
    const auto e = *pipeline.evaluate(t.set, 1, bytes), o = *pipeline.evaluate(t.set, 1, others);
    double length = 0, of_others = 0;
    std::vector<int32_t> row(38);
    for (uint64_t i = 0; i < 8; i++) {
        t.set.sample(i, row.data());
        for (size_t k = 1; k < 38; k++) {
            length += bytes[size_t(row[k])];
            of_others += others[size_t(row[k])];
        }
    }
    const double bits = *e.bits_per_byte * length, rest = *o.bits_per_byte * of_others;
    EXPECT_NEAR(bits + rest, e.loss * 8 * 37 / std::log(2.0), 1e-6);
    EXPECT(bits > rest && rest > 0, "%g and %g bits", bits, rest);
    EXPECT(!pipeline.evaluate(t.set, 1, {})->bits_per_byte, "bits per byte without a tokenizer");
}

// ---------------------------------------------------------------------------------------------------------
// the optimizer

// A value that is not finite, in any gradient or in the loss, is reported, and the state stays unchanged.
TEST(what_is_not_finite_never_reaches_the_weights) {
    Tiny t(tiny_config());
    train_steps(t, 2);
    Pipeline& pipeline = t.model.pipeline;
    Loader data(t.set, t.cfg.train.micro_batch, 16);
    Trace before, after;
    before.keep_state(t);
    for (const double poison : {double(NAN), double(INFINITY), -double(INFINITY)})
        for (const char* where : {"wte", "h.0.ln1b", "h.1.fcw", "lnfb", "loss"}) {
            pipeline.run(data);
            if (!strcmp(where, "loss")) *t.model.gpt.loss = poison;
            else t.model.shards.grads[t.tensor(where).start + t.tensor(where).param.used() - 1] =
                real(poison);
            enqueue_update(t.model, 1e-3, 2);
            const StepResult r = t.model.statistics->read();
            EXPECT(!r.finite, "%g in %s passes as finite", poison, where);
            EXPECT(std::isfinite(r.norm) == !strcmp(where, "loss"), "%g in %s: norm %g", poison, where,
                   r.norm);
            after.keep_state(t);
            EXPECT(after == before, "%g in %s changes the weights or the moments", poison, where);
        }
    Trace trace;
    EXPECT(train_step(t, data, 2, trace), "a sound step after them is not taken");
    after.keep_state(t);
    EXPECT(!(after == before) && std::isfinite(trace.losses[0]), "a sound step after them changes nothing");
}

TEST(a_poisoned_weight_shows_in_loss_and_norm) {
    Tiny t(tiny_config());
    std::vector<real> values = t.whole(t.tensor("h.1.qkvw"));
    values[5] = real(NAN);
    set_tensor(t.model.shards, t.tensor("h.1.qkvw"), values);
    Trace trace;
    Loader data(t.set, t.cfg.train.micro_batch, 0);
    EXPECT(!train_step(t, data, 0, trace), "passes as finite");
    EXPECT(std::isnan(trace.losses[0]) && std::isnan(trace.norms[0]), "numbers pass");
}

// BF16 weights rounded at random from the same masters: another run, the same each time. Other precisions
// have no masters to round.
TEST(stochastic_rounding_is_wired_and_repeats) {
    Config cfg = tiny_config();
    const Trace nearest = train_steps(cfg, 3);
    cfg.optimizer.stochastic_rounding = true;
    const Trace a = train_steps(cfg, 3), b = train_steps(cfg, 3);
    EXPECT(a == b, "two runs differ by %.3g", largest_difference(a.losses, b.losses));
    EXPECT((a == nearest) == !kIsBf16, "losses differ by %.3g", largest_difference(a.losses, nearest.losses));
    cfg.run.seed = 2;
    const Trace other = train_steps(cfg, 3);
    EXPECT(!(other == a), "another seed rounds alike");
}

// Each tensor takes part: after a step every one has changed, gaps and padding rows have not.
TEST(a_step_reaches_every_tensor_and_no_padding) {
    Tiny t(tiny_config());
    const std::vector<real> before(t.masters(), t.masters() + t.size());
    train_steps(t, 3);
    std::vector<bool> used(t.size());
    for (const Tensor& tensor : t.model.shards.layout.tensors) {
        size_t changed = 0;
        for (size_t i = tensor.start; i < tensor.start + tensor.param.used(); i++) {
            used[i] = true;
            changed += t.masters()[i] != before[i];
        }
        EXPECT(changed > tensor.param.used() / 2, "%s: %zu of %zu changed", tensor.name.c_str(), changed,
               tensor.param.used());
    }
    size_t padding = 0;
    for (size_t i = 0; i < t.size(); i++) {
        if (used[i]) continue;
        padding++;
        EXPECT(t.masters()[i] == 0 && t.model.shards.grads[i] == 0 && t.state("m")[i] == 0 &&
                   t.state("v")[i] == 0 && t.model.shards.params[i] == 0,
               "element %zu of the padding is not zero", i);
    }
    EXPECT(padding >= size_t(128 - 66) * 48, "%zu elements of padding", padding);
}

// Whatever stands in the padding rows of wte: the same losses and gradients.
TEST(logits_of_padding_never_matter) {
    std::vector<std::vector<real>> grads;
    std::vector<double> losses;
    for (const double fill : {0.0, 3.0}) {
        Tiny t(tiny_config());
        t.shake();
        const Tensor& wte = t.tensor("wte");
        for (size_t i = wte.param.used(); i < wte.param.count(); i++)
            t.model.shards.params[wte.start + i] = floatX(float(fill));
        Pipeline& pipeline = t.model.pipeline;
        Loader data(t.set, t.cfg.train.micro_batch, 0);
        pipeline.run(data);
        losses.push_back(pipeline.summed_loss());
        losses.push_back(pipeline.evaluate(t.set, 1, {})->loss);
        grads.emplace_back(t.model.shards.grads, t.model.shards.grads + t.size());
    }
    EXPECT(losses[0] == losses[2] && losses[1] == losses[3], "losses %.17g and %.17g", losses[0], losses[2]);
    EXPECT(memcmp(grads[0].data(), grads[1].data(), grads[0].size() * sizeof(real)) == 0, "gradients differ");
}

}  // namespace PRECISION
