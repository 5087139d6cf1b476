/*
Pretrain a GPT. Usage: train_gpt config.json [--section.key=value ...]

Compiled once per precision; llmc/main.cpp reads the command line and picks one. Every line below runs on
every rank. README.md explains the settings, llmc/README.md has a line for every file.
*/
#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/train/run/integrity.h"
#include "llmc/train/run/kernel_choices.h"
#include "llmc/train/run/peaks.h"
#include "llmc/train/run/programs.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/score/scores.h"
#include "llmc/train/step/learning_rate.h"
#include "llmc/train/survive/elastic_images.h"
#include "llmc/train/survive/start.h"

namespace PRECISION {

// Figures of the header: sums over the ranks, or the fullest rank's. All ranks together.
static StartInfo start_info(const Config& cfg, const Model& model, const RunData& data, RunState before) {
    const Axis& world = model.mesh.world;
    const int64_t rows = std::max(int64_t(0), cfg.train.steps - before.step) * model.pipeline.batch_rows;
    const uint64_t evals = model.pipeline.rows_of_evaluation(data.val, cfg.eval.batches);
    return {.device = ops::device_name(), .precision = cfg.run.precision.text(), .data = data.describe(evals),
            .rows = data.describe_rows(), .threads = context.threads, .world = world.size,
            .params = int64_t(model.shards.layout.parameters), .vocab = data.vocab,
            .micro_batch = cfg.train.micro_batch,
            .plan_bytes = size_t(largest_over(world, double(model.bytes()))), .bus_id = ops::device_bus_id(),
            .peak_tflops = peak_tflops(world, cfg.log), .tokens = before.tokens + rows * cfg.model.context,
            .epochs = epochs_of(data.train, double(before.sample + rows))};
}

// Between two steps: validation, tasks and a text. A signal may interrupt each; then no line is logged.
static void evaluate(const Due& due, const Config& cfg, Model& model, const RunData& data,
                     const PeakMemory& memory, Generator* generator, RunLog& log, RunState& state) {
    phase(Phase::Evaluate, state.step);
    if (due.evaluation)
        if (const auto e = model.pipeline.evaluate(data.val, cfg.eval.batches, data.bytes)) {
            state.add({.step = state.step, .loss = e->loss, .bits_per_byte = e->bits_per_byte});
            log.val(state.step, e->loss, e->bits_per_byte);
            log.memory(state.step, memory.largest());
        }
    if (due.tasks)
        if (const auto all = score_tasks(data.tasks, *model.scorer, model.zero, model.mesh)) {
            state.scored = true;
            for (const ScoredTask& task : *all) log.task(state.step, task);
        }
    if (!due.text) return;
    phase(Phase::Sample, state.step);
    if (const auto text = generator->run(*data.tokenizer, data.prompt, uint64_t(state.step))) {
        state.sampled = true;
        log.sample(state.step, generator->sampler.cfg.prompt + *text);
    }
}

int train(Config cfg, const Mesh& mesh) {
    catch_signals();
    phase(Phase::Start, 0);
    RunLog log(cfg);                                                // refuses a foreign run.dir
    const std::optional<Origin> origin = find_start(cfg, mesh.world);       // a checkpoint to resume from
    const int saved_batch = adopt_open_settings(cfg, origin, mesh.rank == 0);
    const RunData data = open_run_data(cfg, mesh.world);            // tokenizer and tokens, validated
    const bool samples = cfg.sample.every > 0 && data.tokenizer;
    cfg.model.vocab = data.vocab;
    const size_t room = available_to_rank(mesh, cfg.memory);
    cfg.train.micro_batch = fitting_micro_batch(cfg, mesh, samples, room, saved_batch);
    if (origin) check_settings(cfg, *origin, data.contents, mesh.rank == 0);
    Model model(cfg, mesh, cfg.train.micro_batch, samples);         // planned, not yet allocated
    Checkpoint checkpoint(cfg, model.shards, model.votes, model.snapshot, data.tokenizer_files, model.images);
    const StartInfo info = start_info(cfg, model, data, origin ? origin->state() : RunState());
    warm_up(cfg, model, model.pipeline.rows_of_evaluation(data.val, cfg.eval.batches),
            samples ? data.prompt.size() : 0);
    choose_kernels(cfg, model);
    const PeakMemory memory(mesh.world);                            // measures from here
    model.allocate();
    ElasticImages images(cfg, checkpoint);                          // in memory that outlives this process
    RunState state = images.load_or_init(origin, data.contents);
    const int64_t first = state.step;
    const auto loader = open_loader(cfg, data, mesh, state.sample);
    std::optional<Generator> generator;
    if (samples) generator.emplace(cfg, mesh, *model.decoder, model.zero);
    log.start(cfg, info, checkpoint.newest, state);
    StepLog step_log(cfg, info, model, log, state);
    Integrity integrity(cfg, model, data.train, checkpoint, step_log);      // sniffs, where asked to

    Signals asked;                                                  // of any rank: by step sums or agree()
    for (;; step_log.advance(loader.get())) {                             // after trouble: back to an image
        const int64_t step = state.step;                            // steps done
        const bool last = step >= cfg.train.steps;
        const Due due = due_at(cfg, state, generator.has_value());
        const bool pauses = last || due.any() || asked.save || asked.stop || checkpoint.due(step);
        if (pauses && !step_log.catches_up(asked)) continue;        // logs all steps so far
        if (due.any()) evaluate(due, cfg, model, data, memory, generator ? &*generator : nullptr, log, state);
        images.keep(state, asked.regroup && !last);                 // run.elastic: in memory
        if (step == first || due.any()) asked |= agree(mesh.world, take_signals());  // no step carried these
        checkpoint.save_if_due(state, asked.save, last || asked.stop);
        if (asked.stop) { log.stopped(step, checkpoint.newest); return kExitRestart; }
        if (last) break;

        phase(Phase::Train, step + 1);
        step_log.begin();
        model.pipeline.run(*loader);                                // forward, backward of every micro-batch
        integrity.check();                                          // where due: replicas agree, or code 75
        images.await_safe();
        const StepSums sums = model.statistics->sum_over_ranks(take_signals(), step_log.meter.joules());
        model.optimizer->clip(sums.squares, sums.loss);             // by the gradient norm
        const double lr = learning_rate(cfg.optimizer, cfg.train.steps, step);
        model.optimizer->update(lr, step);                          // no change where the norm is not finite
        step_log.add(step + 1, lr);
        asked = step_log.write(StepLog::late());                    // GPU: logs the previous step meanwhile
    }
    phase(Phase::End, cfg.train.steps);
    log.done(state, step_log.meter.totals, memory.largest());
    return kExitDone;
}

}  // namespace PRECISION
