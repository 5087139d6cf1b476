#include "llmc/train/run/step_log.h"

#include "llmc/base/context.h"
#include "llmc/base/host/machine.h"
#include "llmc/comm/agents/member.h"
#include "llmc/ops/ops.h"

namespace PRECISION::inline runs {

static std::vector<std::string> names_of(const Model& m) {
    return m.health ? m.health->names : std::vector<std::string>();
}

static double flops_of(ModelConfig m, const StartInfo& info) {
    m.vocab = info.vocab;
    return model_flops_per_token(m, info.params);
}

// Of each rank: ranks of a stage do the same work.
static std::vector<int> stages_of_ranks(const Config& c, int world) {
    const MeshShape shape = mesh_shape(c.parallel, world);
    std::vector<int> stages;
    for (int r = 0; r < world; r++) stages.push_back(index_on(shape, kPp, r));
    return stages;
}

StepLog::StepLog(const Config& c, const StartInfo& info, Model& m, RunLog& l, RunState& s)
    : cfg(c), model(m), log(l), state(s),
      meter(c, flops_of(c.model, info), info.peak_tflops, info.bus_id, s), spikes(names_of(m), s.tensors),
      stragglers(stages_of_ranks(c, m.mesh.world.size)), trace(c, m) {}

void StepLog::begin() {
    const int64_t step = state.step + 1;
    if (cfg.log.comm) traffic.take(model.mesh);
    if (trace.due(step)) earlier |= write();
    trace.begin(step);
    if (steps.empty()) meter.begin();
    if (model.health) model.health->begin(state.step + 1);
    model.statistics->begin();
}

void StepLog::add(int64_t step, double lr) {
    model.statistics->start_read();
    Step s = {.step = step, .sample = state.sample + model.pipeline.batch_rows, .lr = lr, .moved = {},
              .health = {}};
    if (cfg.log.comm) {
        const Timed counts("log");
        s.moved = traffic.take(model.mesh);
    }
    if (model.health && model.health->measuring) {
        const Timed reads("health");
        s.health = model.health->collect();
    }
    steps.push_back(std::move(s));
}

[[noreturn]] static void end_in_trouble(const StepFigures& r, const TrainConfig& train, const RunState& s) {
    const std::string figures = fmt::format("step {}: loss {:g}, gradient norm {:g}", r.step, r.loss, r.norm);
    const char* const advice = "Try a lower optimizer.lr or a longer optimizer.warmup";
    if (!train.rollback.every)
        fatal(kExitNotFinite, __FILE__, __LINE__, "{}; {} steps were skipped, train.max_skips = {}. {}",
              figures, s.skipped, train.max_skips, advice);
    fatal(kExitNotFinite, __FILE__, __LINE__, "{}; in trouble again after {} rollbacks, which is "
          "train.rollback's most. {}, or skip more data", figures, s.rollbacks, advice);
}

// Ranks have equal figures, and decide alike.
void StepLog::count(const StepFigures& r, const Step& s) {
    if (!state.count(cfg.train, r.step, r.loss, r.norm, r.finite)) return;
    wrong = Wrong{s.step, s.sample};
}

void StepLog::advance(Loader* loader) {
    if (wrong && loader) roll_back(*loader);
    else state.advance(model.pipeline.batch_rows, cfg.model.context);
}

bool StepLog::catches_up(Signals& asked) {
    asked |= write();
    return !wrong;
}

void StepLog::roll_back(Loader& loader) {
    for (; !steps.empty(); steps.pop_front()) {     // begun before the host knew
        model.statistics->read();
        earlier |= model.votes.asked();
    }
    trace.end(meter.span);
    trace.write();
    RunState& image = model.images.go_back(state.trouble);
    const int64_t rows = model.pipeline.batch_rows;
    const int64_t sample = wrong->sample + cfg.train.rollback.skip * rows;
    const RolledBack r{.step = wrong->step, .to = image.step, .skipped = (sample - image.sample) / rows,
                       .number = state.rollbacks + 1, .most = cfg.train.rollback.most};
    image.sample = sample;
    image.rollbacks = r.number;
    state = image;
    spikes = Spikes(names_of(model), state.tensors);
    loader.move_to(uint64_t(sample));
    log.rollback(r);
    wrong.reset();
}

// Ranks have equal figures, and rank 0 writes them.
void StepLog::write_health(const Step& s, const StepFigures& r, const StepResult& result) {
    if (context.rank != 0) return;
    const std::optional<Spike> spike = spikes.see(r, result.tensor_norms);
    if (!result.tensor_norms.empty() && (spike || cfg.log.health_due(s.step)))
        log.grad_norms(s.step, model.health->names, result.tensor_norms);
    if (s.health) log.health(*s.health);
    if (spike) log.spike(*spike);
}

// The slow rank says so itself: it knows its host. Ranks have equal figures, and judge alike.
void StepLog::name_if_slow(int64_t step, const StepResult& result) {
    for (const Straggler& s : stragglers.add(result.own_seconds)) {
        if (s.rank != context.rank) continue;
        warning("rank {} of {} on {} is slow: without waits for other ranks its last {} steps or more, up to "
                "step {}, took {:.1f} times as long as those of the ranks beside it", s.rank,
                model.mesh.world.size, host_name(), Stragglers::kSteps, step, s.factor);
        if (member()) member()->report_slow(s.factor);
    }
}

Signals StepLog::write(size_t left) {
    Signals asked = std::exchange(earlier, {});
    if (trace.recording()) left = 0;
    else trace.end();
    for (; steps.size() > left && !wrong; steps.pop_front()) {
        const Step& s = steps.front();
        const StepResult result = model.statistics->read();
        asked |= model.votes.asked();
        StepFigures figures{.step = s.step, .loss = result.loss, .norm = result.norm, .lr = s.lr,
                            .finite = result.finite, .joules = result.joules};
        const bool shown = cfg.log.every && (s.step % cfg.log.every == 0 || s.step == cfg.train.steps);
        if (context.rank == 0 && shown) figures.memory_bytes = ops::device_in_use();
        count(figures, s);
        meter.end(figures, result.arrived);
        trace.end(meter.span);
        log.train(figures);
        write_health(s, figures, result);
        name_if_slow(s.step, result);
        if (cfg.log.comm) log.comm(s.step, s.moved);
        trace.write();
        const RollbackRule& rule = cfg.train.rollback;
        if (wrong && (!rule.every || state.rollbacks >= rule.most)) end_in_trouble(figures, cfg.train, state);
    }
    return asked;
}

}  // namespace PRECISION::runs
