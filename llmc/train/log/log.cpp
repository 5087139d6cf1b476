#include "llmc/train/log/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/agents/member.h"
#include "llmc/io/files/rows.h"
#include "llmc/train/log/run_header.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/score/results.h"

inline namespace logs {

RunLog::RunLog(const Config& cfg)
    : start_(seconds_now()), writes_(context.rank == 0) {
    if (!writes_) return;
    if (!member() || !member()->regroups()) check_run_dir(cfg);
    sinks_ = sinks_of(cfg);
    for (const char* name : {"/metrics.jsonl", "/checkpoints.jsonl", "/evals.jsonl"})
        if (const std::string reason = try_own_file(cfg.run.dir + name); !reason.empty())
            CHECK_INPUT(false, "{}{}: {}", cfg.run.dir, name, reason);
}

// Training continues on a full disk. A row without room is removed whole: later rows, when there is room
// again, begin on a line.
void RunLog::write(const std::string& line) {
    if (!file_) return;
    if (member()) member()->claim_files(cfg_.run.dir);
    const std::string reason = try_append(file_.fd, line);
    if (reason.empty() || failed_) return;
    failed_ = true;
    warning("cannot write to {}/metrics.jsonl: {}. Training goes on; rows are missing there.",
            cfg_.run.dir, reason);
}

// ---------------------------------------------------------------------------------------------------------
// start and end

// A resumed run has a config.json: a full disk costs its changes, and does not stop training.
static void write_config(const Config& cfg) {
    const std::string path = cfg.run.dir + "/config.json", text = to_json(cfg);
    if (!file_exists(path)) return write_file(path, text);
    const std::string reason = try_replace_file(path, text);
    if (!reason.empty())
        warning("cannot write {}: {}. It stays as it was; training goes on.", path, reason);
}

void RunLog::cut(int64_t step, int64_t rollbacks) {
    cut_metrics(posix_disk(), cfg_.run.dir + "/metrics.jsonl", step, rollbacks);
    if (step >= 0) cut_metrics(posix_disk(), cfg_.run.dir + "/evals.jsonl", step);
    for (const Sink& sink : sinks_)
        if (sink.begin) sink.begin(step);
}

void RunLog::start(const Config& cfg, const StartInfo& info, const std::string& origin,
                   const RunState& state) {
    cfg_ = cfg;
    info_ = info;
    if (!writes_) return;
    if (member()) member()->claim_files(cfg_.run.dir);
    const std::string metrics = cfg_.run.dir + "/metrics.jsonl";
    std::string reason;
    file_ = open_to_append(metrics, reason);
    CHECK_INPUT(file_, "cannot create {}: {}", metrics, reason);
    const int error = end_last_row(posix_disk(), metrics);
    CHECK_INPUT(error == 0, "cannot write {}: {}", metrics, reason_of(error));
    // an evaluation alone does not change the run
    const bool in_memory = member() && member()->restores(), anew = origin.empty() && !in_memory;
    const bool trains = anew || cfg_.train.steps > 0;
    if (trains) cut(anew ? -1 : state.step, state.rollbacks);
    const Measured facts[] = {{"params", double(info.params)}, {"world", info.world},
                              {"plan_bytes", double(info.plan_bytes)}};
    to_sinks({.event = "start", .step = state.step, .figures = facts});
    const bool fresh = lseek(file_.fd, 0, SEEK_END) == 0, regroups = member() && member()->regroups();
    if (regroups && !fresh) return regroup(state.step);
    if (trains || !file_exists(cfg_.run.dir + "/config.json")) write_config(cfg_);
    JsonLine row(fresh ? "start" : "resume");
    if (!fresh) row.add("step", state.step);
    write(row.add("params", info.params)
              .add("world", info.world)
              .add("device", info.device)
              .add("plan_bytes", info.plan_bytes)
              .add("precision", info.precision)
              .add("threads", info.threads)
              .add("vocab", info.vocab)
              .add("peak_tflops", info.peak_tflops > 0 ? info.peak_tflops : kUnknown)
              .str());
    print_header(cfg_, info_, origin);
    fflush(stdout);
    if (regroups) regroup(state.step);
}

// A finished run was started again.
static void print_complete(const Config& cfg) {
    const bool scheduled = cfg.optimizer.schedule != LrSchedule::Constant;
    print("\ncomplete: all {} were trained before. To train on: --train.steps={}{}",
          counted(cfg.train.steps, "step"), 2 * cfg.train.steps,
          scheduled ? " --checkpoint.override='[\"train.steps\"]'" : "");
}

void RunLog::done(const RunState& state, const StepMeter::Totals& totals, size_t peak_bytes) {
    if (!writes_) return;
    const double seconds = seconds_now() - start_, tokens = double(totals.steps * cfg_.train.batch_tokens);
    write(JsonLine("done")
              .add("step", state.step)
              .add("peak_bytes", peak_bytes)
              .add("seconds", std::round(seconds * 1e3) / 1e3)
              .str());
    if (totals.steps == 0 && cfg_.train.steps > 0) print_complete(cfg_);
    else print("\ndone    {} in {}", counted(state.step, "step"), human_seconds(seconds));
    if (totals.steps)
        print(", {} a step, {} tokens/s", human_seconds(1e-3 * totals.ms / double(totals.steps)),
              grouped(std::llround(1e3 * tokens / totals.ms)));
    const std::optional<Validation>&first = state.first, &last = state.last;
    if (last)
        print("\nloss    {:.4f} at step {}, {:.4f} at step {} (validation)", first->loss, first->step,
              last->loss, last->step);
    if (last && last->bits_per_byte) print(", {:.4f} bits per byte", *last->bits_per_byte);
    if (totals.steps && std::isfinite(totals.joules))
        print("\nenergy  {:.4g} kJ of the GPU{}, {:.3g} J a token", 1e-3 * totals.joules,
              info_.world > 1 ? "s" : "", totals.joules / tokens);
    print("\nmemory  {} at most, {} planned\n", human_bytes(double(peak_bytes)),
          human_bytes(double(info_.plan_bytes)));
    fflush(stdout);
}

// ---------------------------------------------------------------------------------------------------------
// steps

void RunLog::to_sinks(const Logged& logged) const {
    for (const Sink& sink : sinks_) sink.add(logged);
}

JsonLine RunLog::figures(std::string_view event, int64_t step, const std::vector<Measured>& values,
                         bool skipped) const {
    to_sinks({.event = event, .step = step, .figures = values, .skipped = skipped});
    JsonLine line = figures_row(event, step, values);
    if (skipped) line.add("skipped", true);
    return line;
}

// In files, times and rates have three digits after the point.
static std::vector<Measured> filed_values(StepFigures r) {
    for (double* v : {&r.ms, &r.tokens_per_s}) *v = std::round(*v * 1e3) / 1e3;
    return values_of(r);
}

void RunLog::note_rate(const StepFigures& r) {
    if (mfu_noted_ || !(r.mfu > 1)) return;
    mfu_noted_ = true;
    print_event("note", "mfu above 100%: the matmul rate of " + shown_rate(info_.peak_tflops) +
                " TFLOP/s is too low; log.peak_tflops sets it");
}

void RunLog::train(const StepFigures& r) {
    if (!writes_) return;
    end_regroup();
    write(figures("train", r.step, filed_values(r), !r.finite).str());
    const int64_t every = std::max<int64_t>(1, cfg_.log.every);
    const bool due = r.step % every == 0 || r.step == cfg_.train.steps || !r.finite;
    if (cfg_.log.every) lines_.add(r, cfg_.train.steps, cfg_.train.batch_tokens, due);
    if (cfg_.log.every && !r.finite)
        print_event("skipped", "loss or gradient is not finite: the weights stay as they are");
    note_rate(r);
}

// A row, and a line on the screen.
void RunLog::comm(int64_t step, const CommStep& moved) {
    if (!writes_) return;
    uint64_t bytes = 0;
    double seconds = 0;
    const double hidden = hidden_share(moved.device);
    for (const CommRow& row : moved.rows) {
        bytes += row.bytes;
        seconds += row.seconds;
    }
    const auto in_ms = [](double s) { return std::round(s * 1e6) / 1e3; };
    const auto of_device = [&](double s) { return std::isnan(hidden) ? kUnknown : in_ms(s); };
    JsonLine line = figures("comm", step, {{"bytes", double(bytes)}, {"wait_ms", in_ms(seconds)},
                                           {"device_ms", of_device(moved.device.busy)},
                                           {"device_wait_ms", of_device(moved.device.waited)},
                                           {"hidden", std::round(hidden * 1e4) / 1e4}});
    for (const CommRow& row : moved.rows) {
        line.add(row.name + "_calls", row.calls).add(row.name + "_bytes", row.bytes);
        line.add(row.name + "_wait_ms", in_ms(row.seconds));
    }
    write(line.str());
    if (cfg_.log.every == 0 || (step % cfg_.log.every && step != cfg_.train.steps)) return;
    std::string text = fmt::format("{} sent by rank 0, {} waited:", human_bytes(double(bytes)),
                                   human_seconds(std::isnan(hidden) ? seconds : moved.device.waited));
    for (const CommRow& row : moved.rows)
        text += fmt::format(" {} {}", row.name, human_bytes(double(row.bytes)));
    if (!std::isnan(hidden)) text += fmt::format("; {:.0f}% hidden", 100 * hidden);
    print_event("comm", text);
}

void RunLog::health(const Health& h) {
    if (!writes_) return;
    if (cfg_.log.health_due(h.step)) write(health_row(h));
    if (cfg_.log.histograms_due(h.step))
        to_sinks({.event = "health", .step = h.step, .histograms = histograms_of(h)});
}

void RunLog::grad_norms(int64_t step, std::span<const std::string> names, std::span<const double> norms) {
    if (writes_) write(grad_norms_row(step, names, norms));
}

void RunLog::spike(const Spike& s) {
    if (!writes_) return;
    write(spike_row(s));
    print_event("spike", text_of(s));
}

void RunLog::rollback(const RolledBack& r) {
    if (!writes_) return;
    cut(r.to, r.number - 1);
    write(JsonLine("rollback").add("step", r.step).add("to", r.to).add("skipped", r.skipped).str());
    print_event("rollback", fmt::format("from step {} to step {}, {} of data left out ({} of at most {})",
                                        r.step, r.to, counted(r.skipped, "step"), r.number, r.most));
    fflush(stdout);
}

void RunLog::memory(int64_t step, size_t peak_bytes) {
    if (!writes_) return;
    write(figures("memory", step, {{"peak_bytes", double(peak_bytes)}}).str());
}

void RunLog::val(int64_t step, double loss, std::optional<double> bits_per_byte) {
    if (!writes_) return;
    const double bits = bits_per_byte.value_or(kUnknown);
    write(figures("val", step, {{"loss", loss}, {"bits_per_byte", bits}}).str());
    std::string text = fmt::format("loss {:.5f} at step {}", loss, step);
    if (bits_per_byte) text += fmt::format(", {:.4f} bits per byte", *bits_per_byte);
    print_event("validation", text);
}

void RunLog::task(int64_t step, const ScoredTask& scored) {
    if (!writes_) return;
    const TaskResult& r = scored.result;
    JsonLine line("task");
    add_to_row(line.add("step", step), r);
    write(line.str());
    std::vector<Scalar> scalars = {{"tasks/" + r.task, r.accuracy()}};
    if (r.correct_norm) scalars.push_back({"tasks/" + r.task + "_norm", r.accuracy_norm()});
    to_sinks({.event = "task", .step = step, .scalars = scalars});
    std::string text = fmt::format("{} {:.2f}%", r.task, 100 * r.accuracy());
    if (r.correct_norm) text += fmt::format(", normalized {:.2f}%", 100 * r.accuracy_norm());
    print_event("task", text + fmt::format(" at step {}, chance {:.2f}%", step, 100 * r.chance));
    write_result(cfg_.run.dir, step, scored);
}

void RunLog::sample(int64_t step, std::string_view text) {
    if (!writes_) return;
    write(JsonLine("sample").add("step", step).add("text", text).str());
    const std::string shown = printable(text);
    to_sinks({.event = "sample", .step = step, .text = shown});
    print_event("sample", "at step " + std::to_string(step));
    for (size_t i = 0; i < shown.size();) {
        const size_t end = std::min(shown.find('\n', i), shown.size());
        print("{}{}\n", end > i ? "    | " : "    |", shown.substr(i, end - i));
        i = end + 1;
    }
    fflush(stdout);
}

void RunLog::corrupt(int64_t step, int rank, const std::string& host, const std::string& what) {
    if (!writes_) return;
    write(JsonLine("corrupt").add("step", step).add("rank", rank).add("host", host).add("what", what).str());
}

void RunLog::stopped(int64_t step, const std::string& checkpoint) {
    if (!writes_) return;
    print("\nstopped at step {}", grouped(step));
    if (!checkpoint.empty())
        print(", saved as {}; the same command goes on from there", for_terminal(checkpoint));
    print("\n");
    fflush(stdout);
}

}  // namespace logs
