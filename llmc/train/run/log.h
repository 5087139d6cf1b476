// The log of a run: lines on the screen, rows in run.dir/metrics.jsonl.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/train/run/comm_log.h"
#include "llmc/train/step/dataset.h"
#include "llmc/train/run/energy.h"
#include "llmc/train/save/run_state.h"

// What is known once everything is built.
struct StartInfo {
    std::string device;             // "cpu", with its name
    std::string precision;          // what run.precision resolved to
    std::string data;               // "3 shards, 4,123,456 tokens; validation 412,345"
    int threads = 1, world = 1;
    int64_t params = 0;             // without padding
    int vocab = 0;                  // resolved
    int micro_batch = 0;            // resolved
    size_t plan_bytes = 0;
    std::string bus_id;             // of this rank's device, for NVML; empty: it has none
    double peak_tflops = 0;         // matmul rate of all ranks together; 0: unknown
    std::vector<Epochs> epochs;     // of data.train, over all steps
};

struct TrainRow {
    int64_t step = 0;               // steps finished, this one included
    double loss = 0, norm = 0, lr = 0;
    int64_t tokens = 0;             // since the start of the run
    bool finite = true;             // false: the step was skipped
    double joules = std::numeric_limits<double>::quiet_NaN();       // of all devices
};

struct RunLog {
    // REQUIRES: run.dir is there, and this start has its lock (RunLock).
    // Refuses a run.dir that holds a run where it is not to go on; writes no row yet.
    explicit RunLog(const Config& cfg);
    ~RunLog();
    RunLog(const RunLog&) = delete;
    RunLog& operator=(const RunLog&) = delete;

    // config.json, resolved, and the header on screen. origin: the checkpoint that the run
    // goes on from, empty for a new run; of metrics.jsonl the rows up to the state's step stay then. The log
    // keeps the statistics of `state` up to date.
    void start(const Config& cfg, const StartInfo& info, const std::string& origin, RunState* state);
    void begin();                           // starts the step's clock
    // What this rank's device drew within steps since the last call: the gradients of this one and the update
    // of the one before. NaN: unknown.
    double joules() { return energy_.take(); }
    void train(const TrainRow& row);        // stops it
    void comm(int64_t step, const CommStep& moved);      // what the step sent, of this rank
    void val(int64_t step, double loss, std::optional<double> bits_per_byte);
    void sample(int64_t step, std::string_view text);   // prompt and continuation
    void checkpoint(const std::optional<std::string>& dir);     // one is on the medium; none: nothing is said
    void stopped(int64_t step);             // by a signal, after checkpoint()
    void done(int64_t step, size_t peak_bytes);

    double mean_step_ms() const;            // over this start's steps; 0 before the first

private:
    using Clock = std::chrono::steady_clock;
    Config cfg_;
    StartInfo info_;
    std::string saved_;                     // the last checkpoint
    int file_ = -1;                         // metrics.jsonl; a row is one write
    bool writes_ = false;                   // rank 0 does
    bool failed_ = false;                   // a row could not be written, and that has been said
    Clock::time_point step_begin_, loop_begin_, start_;
    int64_t steps_done_ = 0;                // by this start
    double step_ms_ = 0;                    // sum over them
    EnergyMeter energy_;
    double joules_ = 0;                     // of all steps
    RunState* state_ = nullptr;
    bool header_due_ = true, mfu_noted_ = false;

    struct StepRate { double ms, tokens_per_s, tflops, mfu, seconds_left; };
    void write(const std::string& line);
    void print_step(const TrainRow& row, const StepRate& rate);
};

// 6 N + 6 L C T: forward and backward, attention causal
double model_flops_per_token(int64_t params, int layers, int channels, int context);
