#include "llmc/train/run/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/files.h"
#include "llmc/base/json.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/run/run_header.h"

static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();    // null in metrics.jsonl

double model_flops_per_token(int64_t params, int layers, int channels, int context) {
    return 6.0 * double(params) + 6.0 * layers * channels * context;
}

RunLog::RunLog(const Config& cfg) : writes_(context.rank == 0), start_(Clock::now()) {
    if (!writes_) return;
    check_run_dir(cfg);
    for (const char* name : {"/metrics.jsonl", "/checkpoints.jsonl"}) own_file(cfg.run.dir + name);
}

RunLog::~RunLog() { if (file_ >= 0) close(file_); }

static bool write_all(int file, const char* text, size_t size) {
    while (size > 0) {
        const ssize_t n = ::write(file, text, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text += n;
        size -= size_t(n);
    }
    return true;
}

// A disk that is full does not end the training. Of a row that it does not hold no part stays, so that those
// of later, when there is room again, are rows.
void RunLog::write(const std::string& line) {
    if (file_ < 0) return;
    const off_t end = lseek(file_, 0, SEEK_END);
    if (write_all(file_, line.data(), line.size())) return;
    const int why = errno;
    [[maybe_unused]] const int cut = ftruncate(file_, end);     // a pipe has no end to go back to
    if (failed_) return;
    failed_ = true;
    warning("cannot write to %s/metrics.jsonl: %s. Training goes on; rows are missing there.",
            cfg_.run.dir.c_str(), strerror(why));
}

// ---------------------------------------------------------------------------------------------------------
// start and end

void RunLog::start(const Config& cfg, const StartInfo& info, const std::string& origin, RunState* state) {
    cfg_ = cfg, info_ = info, state_ = state, saved_ = origin;
    if (cfg_.log.peak_tflops > 0) info_.peak_tflops = cfg_.log.peak_tflops * info.world;
    energy_ = EnergyMeter(info_.bus_id);
    if (!writes_) return;
    const std::string metrics = cfg_.run.dir + "/metrics.jsonl";
    file_ = open(metrics.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
    CHECK_INPUT(file_ >= 0, "cannot create %s: %s", metrics.c_str(), strerror(errno));
    // an evaluation alone leaves the run what it was
    const bool trains = origin.empty() || cfg_.train.steps > 0;
    if (trains) cut_metrics(posix_disk(), metrics, origin.empty() ? -1 : state->step);
    const std::string config = cfg_.run.dir + "/config.json";
    if (trains || !file_exists(config)) write_file(config, to_json(cfg_));
    const bool fresh = lseek(file_, 0, SEEK_END) == 0;
    JsonLine row(fresh ? "start" : "resume");
    if (!fresh) row.add("step", state->step);
    write(row.add("params", info.params)
              .add("world", info.world)
              .add("device", info.device)
              .add("plan_bytes", info.plan_bytes)
              .add("precision", info.precision)
              .add("threads", info.threads)
              .add("vocab", info.vocab)
              .add("peak_tflops", info_.peak_tflops > 0 ? info_.peak_tflops : kUnknown)
              .str());
    print_header(cfg_, info_, origin);
    fflush(stdout);
}

double RunLog::mean_step_ms() const { return steps_done_ ? step_ms_ / double(steps_done_) : 0; }

void RunLog::done(int64_t step, size_t peak_bytes) {
    if (!writes_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    write(JsonLine("done")
              .add("step", step)
              .add("peak_bytes", peak_bytes)
              .add("seconds", std::round(seconds * 1e3) / 1e3)
              .str());
    printf("\ndone    %s in %s", counted(step, "step").c_str(), human_seconds(seconds).c_str());
    if (steps_done_)
        printf(", %s a step, %s tokens/s", human_seconds(mean_step_ms() / 1e3).c_str(),
               grouped(std::llround(double(cfg_.train.batch_tokens) * 1e3 / mean_step_ms())).c_str());
    const std::optional<Validation>&first = state_->first, &last = state_->last;
    if (last)
        printf("\nloss    %.4f at step %lld, %.4f at step %lld (validation)", first->loss,
               (long long)first->step, last->loss, (long long)last->step);
    if (last && last->bits_per_byte) printf(", %.4f bits per byte", *last->bits_per_byte);
    if (steps_done_ && std::isfinite(joules_))
        printf("\nenergy  %.4g kJ of the GPU%s, %.3g J a token", 1e-3 * joules_, info_.world > 1 ? "s" : "",
               joules_ / double(steps_done_ * cfg_.train.batch_tokens));
    printf("\nmemory  %s at most, %s planned\n", human_bytes(double(peak_bytes)).c_str(),
           human_bytes(double(info_.plan_bytes)).c_str());
    fflush(stdout);
}

// ---------------------------------------------------------------------------------------------------------
// steps

void RunLog::begin() {
    step_begin_ = Clock::now();
    if (steps_done_ == 0) loop_begin_ = step_begin_;
    energy_.start();
}

static std::string fixed(const char* format, double v) {
    if (!std::isfinite(v)) return "n/a";
    char text[64];
    snprintf(text, sizeof text, format, v);
    return text;
}

void RunLog::print_step(const TrainRow& row, const StepRate& r) {
    static const char* const kColumns = "%15s  %9s  %9s  %9s  %9s  %10s  %8s  %6s  %12s";
    const double joules = row.joules / double(cfg_.train.batch_tokens);
    const bool energy = std::isfinite(joules);
    if (header_due_) {
        printf(kColumns, "step", "loss", "norm", "lr", "ms", "tokens/s", "TFLOP/s", "mfu", "left");
        printf(energy ? "  %7s\n" : "\n", "J/token");
        header_due_ = false;
    }
    const std::string step = std::to_string(row.step) + "/" + std::to_string(cfg_.train.steps);
    const std::string mfu = fixed("%.1f%%", 100 * r.mfu);
    printf(kColumns, step.c_str(), fixed("%.5f", row.loss).c_str(), fixed("%.4f", row.norm).c_str(),
           fixed("%.3e", row.lr).c_str(), fixed("%.1f", r.ms).c_str(),
           grouped(std::llround(r.tokens_per_s)).c_str(), fixed("%.4f", r.tflops).c_str(), mfu.c_str(),
           human_seconds(r.seconds_left).c_str());
    printf(energy ? "  %7.2g\n" : "\n", joules);
    if (!row.finite)
        printf("%15s  loss or gradient is not finite: the weights stay as they are\n", "skipped");
    fflush(stdout);
}

void RunLog::train(const TrainRow& row) {
    energy_.read();
    const Clock::time_point now = Clock::now();
    StepRate r;
    r.ms = std::max(std::chrono::duration<double, std::milli>(now - step_begin_).count(), 1e-3);
    r.tokens_per_s = double(cfg_.train.batch_tokens) / r.ms * 1e3;
    r.tflops =
        r.tokens_per_s * 1e-12 *
        model_flops_per_token(info_.params, cfg_.model.layers, cfg_.model.channels, cfg_.model.context);
    r.mfu = info_.peak_tflops > 0 ? r.tflops / info_.peak_tflops : kUnknown;
    step_begin_ = now;              // of the next, where it has begun already
    steps_done_++;
    step_ms_ += r.ms;
    joules_ += row.joules;
    // evaluations, samples and checkpoints on the way count in what is left
    r.seconds_left = std::chrono::duration<double>(now - loop_begin_).count() / double(steps_done_) *
                     double(std::max<int64_t>(0, cfg_.train.steps - row.step));
    const auto loss_z = state_->loss.score(row.loss), norm_z = state_->norm.score(row.norm);
    if (!writes_) return;

    JsonLine line("train");
    line.add("step", row.step)
        .add("loss", row.loss)
        .add("norm", row.norm)
        .add("lr", row.lr)
        .add("tokens", row.tokens)
        .add("ms", std::round(r.ms * 1e3) / 1e3)
        .add("tokens_per_s", std::round(r.tokens_per_s * 1e3) / 1e3)
        .add("mfu", r.mfu);
    if (std::isfinite(row.joules))
        line.add("joules", row.joules).add("joules_per_token", row.joules / double(cfg_.train.batch_tokens));
    if (loss_z) line.add("loss_z", *loss_z);
    if (norm_z) line.add("norm_z", *norm_z);
    if (!row.finite) line.add("skipped", true);
    write(line.str());
    if (cfg_.log.every && (row.step % cfg_.log.every == 0 || row.step == cfg_.train.steps || !row.finite))
        print_step(row, r);
    if (r.mfu > 1 && !mfu_noted_) {
        mfu_noted_ = true;
        printf("%15s  mfu above 100%%: the matmul rate of %s TFLOP/s is too low; log.peak_tflops sets it\n",
               "note", shown_rate(info_.peak_tflops).c_str());
        fflush(stdout);
    }
}

void RunLog::val(int64_t step, double loss, std::optional<double> bits_per_byte) {
    state_->last = {step, loss, bits_per_byte};
    if (!state_->first) state_->first = state_->last;
    if (!writes_) return;
    JsonLine line("val");
    line.add("step", step).add("loss", loss);
    if (bits_per_byte) line.add("bits_per_byte", *bits_per_byte);
    write(line.str());
    printf("%15s  loss %.5f at step %lld", "validation", loss, (long long)step);
    if (bits_per_byte) printf(", %.4f bits per byte", *bits_per_byte);
    printf("\n");
    fflush(stdout);
}

void RunLog::sample(int64_t step, std::string_view text) {
    if (!writes_) return;
    write(JsonLine("sample").add("step", step).add("text", text).str());
    printf("%15s  at step %lld\n", "sample", (long long)step);
    const std::string shown = printable(text);
    for (size_t i = 0; i < shown.size();) {
        const size_t end = std::min(shown.find('\n', i), shown.size());
        printf("%s%s\n", end > i ? "    | " : "    |", shown.substr(i, end - i).c_str());
        i = end + 1;
    }
    fflush(stdout);
}

void RunLog::checkpoint(const std::optional<std::string>& dir) {
    if (!writes_ || !dir) return;
    saved_ = *dir;
    printf("%15s  %s\n", "saved", for_terminal(*dir).c_str());
    fflush(stdout);
}

void RunLog::stopped(int64_t step) {
    if (!writes_) return;
    printf("\nstopped at step %s", grouped(step).c_str());
    if (!saved_.empty()) printf(", saved as %s; the same command goes on from there",
                                for_terminal(saved_).c_str());
    printf("\n");
    fflush(stdout);
}
