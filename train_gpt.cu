/*
Pretrain a GPT. Usage: train_gpt config.json [--section.key=value ...]

Compiled once per precision; llmc/main.cpp reads the command line and picks one. Every line below runs on
every rank. README.md has the settings and a tour of the rest.
*/
#include "llmc/base/context.h"
#include "llmc/base/machine.h"
#include "llmc/train/checkpoint.h"
#include "llmc/train/learning_rate.h"
#include "llmc/train/log.h"
#include "llmc/train/measure.h"
#include "llmc/train/model.h"
#include "llmc/train/programs.h"
#include "llmc/train/run_data.h"
#include "llmc/train/signals.h"

namespace PRECISION {

int train(Config cfg) {
    catch_signals();
    RunLog log(cfg);                                                // refuses a run.dir that is in use
    const Mesh mesh;                                                // who talks to whom
    const RunData data = open_run_data(cfg);                        // tokenizer and tokens, validated
    const bool samples = cfg.sample.every > 0 && data.tokenizer;
    const Dims dims = dims_of(cfg, cfg.model.vocab = data.vocab);
    cfg.train.micro_batch = fitting_micro_batch(cfg, dims, mesh, samples);

    Model model(cfg, dims, mesh, cfg.train.micro_batch, samples);   // planned, not yet there
    Checkpoint checkpoint{cfg, model, data.tokenizer_json};
    const double peak_tflops = matmul_tflops();
    model.warm_up();
    const PeakMemory memory;                                        // counts from here
    model.allocate();

    checkpoint.load_or_init();
    Pipeline pipeline(model.gpt, model.zero, cfg.train.batch_tokens);
    std::optional<Loader> train_data;
    if (cfg.train.steps > 0) train_data.emplace(data.train, cfg.train.micro_batch, 0);
    std::optional<Generator> generator;
    if (samples) generator.emplace(cfg, *model.decoder, model.zero, *data.tokenizer);
    log.start(cfg, {.device = "cpu: " + cpu_name(), .precision = cfg.run.precision, .data = data.describe(),
                    .threads = context.threads, .world = mesh.world.size,
                    .params = int64_t(model.zero.layout.parameters), .vocab = data.vocab,
                    .micro_batch = cfg.train.micro_batch, .plan_bytes = model.arena.bytes(),
                    .peak_tflops = peak_tflops, .first_step = 0});

    // steps + 1 turns, so that the trained model is evaluated and saved as well
    int64_t skipped = 0;
    for (int64_t step = 0;; step++) {
        const bool last = step == cfg.train.steps;
        if (cfg.eval.due(step, last))                               // nothing where a signal cut it short
            if (const auto e = pipeline.evaluate(data.val, cfg.eval.batches, data.bytes))
                log.val(step, e->loss, e->bits_per_byte);
        if (generator && cfg.sample.due(step, last))
            if (const auto text = generator->run(cfg.sample.prompt, uint64_t(step)))
                log.sample(step, cfg.sample.prompt + *text);
        const Signals asked = take_signals();
        if (cfg.checkpoint.due(step, last) || asked.save)
            log.checkpoint(step, checkpoint.save(step, last || asked.stop));
        if (asked.stop) { log.stopped(step); return kExitRestart; }
        if (last) break;

        log.begin();
        const double loss = pipeline.run(*train_data);              // forward, backward of every micro-batch
        const auto [norm, finite] = model.optimizer->clip_gradients(model.gpt.loss);
        const double lr = learning_rate(cfg.optimizer, cfg.train.steps, step);
        model.optimizer->update(lr, step);                          // leaves all as it is where not finite
        log.train({.step = step + 1, .loss = loss, .norm = norm, .lr = lr,
                   .tokens = (step + 1) * cfg.train.batch_tokens, .finite = finite});
        if (!finite && ++skipped > cfg.train.max_skips)
            fatal(kExitNotFinite, __FILE__, __LINE__, "step %ld: loss %g, gradient norm %g; %ld steps were "
                  "skipped, train.max_skips = %ld. Try a lower optimizer.lr or a longer optimizer.warmup",
                  step + 1, loss, norm, skipped, cfg.train.max_skips);
    }
    log.done(cfg.train.steps, memory.peak());
    return kExitDone;
}

}  // namespace PRECISION
