// Room train/log: what a run reports: screen, metrics.jsonl, files of ranks, traces, health.
// Called by train_gpt.cu and train/run. The room measures time, traffic and energy of a step.
// It knows no weight, and changes no bit of training.
//
// The log of a run: lines on the screen, rows in run.dir/metrics.jsonl. Every rank constructs and calls
// RunLog; only rank 0 writes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/train/log/traffic.h"
#include "llmc/train/log/health_rows.h"
#include "llmc/train/log/run_header.h"
#include "llmc/train/log/step_lines.h"
#include "llmc/train/log/step_meter.h"
#include "llmc/train/report/sinks.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/score/answers.h"

inline namespace logs {

// A rollback: by which step, to which, and steps of data that the weights do not see.
struct RolledBack { int64_t step, to, skipped, number, most; };

struct RunLog {
    // REQUIRES: run.dir exists, and this start has its lock (RunLock).
    // Refuses a run.dir with a run that this start does not resume; writes no row yet.
    explicit RunLog(const Config& cfg);
    RunLog(const RunLog&) = delete;
    RunLog& operator=(const RunLog&) = delete;

    // Writes config.json, resolved, and the header on screen. origin: the checkpoint that the run resumes;
    // empty for a new run. metrics.jsonl keeps its rows up to the step of `state`.
    void start(const Config& cfg, const StartInfo& info, const std::string& origin, const RunState& state);
    void train(const StepFigures& r);
    void comm(int64_t step, const CommStep& moved);      // traffic of this rank in the step
    void health(const Health& h);                 // the rows, and the histograms, that are due
    void grad_norms(int64_t step, std::span<const std::string> names, std::span<const double> norms);
    void spike(const Spike& s);
    // Rows of steps after `to` go.
    void rollback(const RolledBack& r);
    void val(int64_t step, double loss, std::optional<double> bits_per_byte);
    void memory(int64_t step, size_t peak_bytes);       // of the fullest rank so far
    void task(int64_t step, const ScoredTask& scored);  // and write_result()
    void sample(int64_t step, std::string_view text);   // prompt and continuation
    // rank: whose copy differs; -1: one on the named hosts, and it is not known which.
    void corrupt(int64_t step, int rank, const std::string& host, const std::string& what);
    void stopped(int64_t step, const std::string& checkpoint);     // by a signal; checkpoint: the newest
    void done(const RunState& state, const StepMeter::Totals& totals, size_t peak_bytes);

private:
    Config cfg_;
    StartInfo info_;
    double start_;                          // on the clock of seconds_now()
    Fd file_;                               // metrics.jsonl; a row is one write
    std::vector<Sink> sinks_;               // log.tensorboard, log.prometheus, ...
    bool writes_ = false;                   // on rank 0
    bool failed_ = false;                   // a row could not be written, and a warning is printed
    StepLines lines_;
    bool mfu_noted_ = false;
    struct Regroup { int64_t from; double lost_at; bool pending; } regroup_ = {};      // of run.elastic

    void write(const std::string& line);
    void cut(int64_t step, int64_t rollbacks);          // files end with this step; -1: are empty
    void to_sinks(const Logged& logged) const;
    // Gives the figures of a row of metrics.jsonl to the sinks; returns the row.
    JsonLine figures(std::string_view event, int64_t step, const std::vector<Measured>& values,
                     bool skipped = false) const;
    void note_rate(const StepFigures& r);
    void regroup(int64_t step);
    void end_regroup();
};

}  // namespace logs
