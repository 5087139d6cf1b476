#include "llmc/train/log/run_header.h"

#include <algorithm>
#include <cstdio>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/terminal.h"
#include "llmc/train/save/formats/formats.h"

inline namespace logs {

std::string shown_rate(double tflops) {
    return tflops < 1000 ? fmt::format("{:.3g}", tflops) : fmt::format("{:.0f}", tflops);
}

// ": 2.11 epochs", or of several corpora ": 2.11 epochs of a_*.bin, 0.4 of b_*.bin".
static std::string shown_epochs(const std::vector<Epochs>& all) {
    std::string text;
    for (const Epochs& e : all) {
        const std::string count = e.count < 1 ? fmt::format("{:.2g}", e.count) : human_count(e.count);
        const char* unit = count == "1" ? " epoch" : " epochs";
        text += text.empty() ? ": " + count + unit : ", " + count;
        if (all.size() > 1) text += " of " + for_terminal(e.glob);
    }
    return text;
}

static constexpr double kRepeats = 4;       // about as good as new text: arXiv 2305.16264

static void warn_of_repeats(const std::vector<Epochs>& all) {
    const auto worst = std::max_element(all.begin(), all.end(), [](const Epochs& a, const Epochs& b) {
        return a.count < b.count; });
    if (worst == all.end() || worst->count <= kRepeats) return;
    warning("the run reads data.train = '{}' {} times over. Beyond about {:.0f} epochs the same text teaches "
            "little more:\n       use more text, or fewer steps (train.steps)", worst->glob,
            human_count(worst->count), kRepeats);
}

// A warning where the user chose the warmup; the default of a short run is a row of the header.
static void say_warmup(const Config& cfg) {
    const int64_t warmup = cfg.optimizer.warmup, steps = cfg.train.steps;
    if (steps == 0 || warmup <= steps) return;
    const int64_t share = 100 * steps / warmup;
    const bool named = std::find(cfg.named.begin(), cfg.named.end(), "optimizer.warmup") != cfg.named.end();
    if (named)
        warning("optimizer.warmup = {} is longer than the run of train.steps = {}: the learning rate ends at "
                "{}% of optimizer.lr", warmup, steps, share);
    else
        print("rate    rises to {}% of optimizer.lr: its warmup has {} steps (--optimizer.warmup={} reaches "
              "all of it)\n", share, warmup, std::max<int64_t>(1, steps / 10));
}

void print_header(const Config& cfg, const StartInfo& info, const std::string& origin) {
    const ModelConfig& m = cfg.model;
    print("model   {}, {}, {}, context {}, vocabulary {}: {} parameters\n", counted(m.layers, "layer"),
          counted(m.heads, "head"), counted(m.channels, "channel"), m.context, grouped(info.vocab),
          human_count(double(info.params)));
    print("device  {}, ", info.device);
    if (info.world > 1) print("{} ranks of ", info.world);
    print("{}, {}\n", counted(info.threads, "thread"), info.precision);
    if (!info.data.empty()) print("data    {}\n", info.data);
    if (!info.rows.empty()) print("rows    {}\n", info.rows);
    print("steps   {} of {} tokens ({} x {} at once), {} tokens in all{}\n", grouped(cfg.train.steps),
          grouped(cfg.train.batch_tokens), info.micro_batch, m.context, human_count(double(info.tokens)),
          shown_epochs(info.epochs));
    say_warmup(cfg);
    print("memory  {} planned{}\n", human_bytes(double(info.plan_bytes)),
          info.world > 1 ? " on the fullest rank" : "");
    if (cfg.memory.offload != Offload::None && info.device.starts_with("cpu:"))
        print("offload of {} saves nothing here: a CPU's device memory is the host's\n",
              cfg.memory.offload.text());
    const bool fp8 = cfg.run.products == ProductKind::Fp8;
    const char* const of = fp8 ? " in bf16, of which mfu is a share; FP8 products are faster" : "";
    if (info.peak_tflops > 0) print("matmul  {} TFLOP/s at most{}\n", shown_rate(info.peak_tflops), of);
    else print("matmul  of unknown rate: no mfu, unless log.peak_tflops gives it\n");
    if (cfg.sample.every > 0 && cfg.data.tokenizer.empty())
        print("samples none: they need data.tokenizer (sample.every=0 leaves them out)\n");
    print("exports: {}\n", exports_of(m));
    print("writes  {}/\n", for_terminal(cfg.run.dir));
    if (!origin.empty()) print("goes on from {}\n", for_terminal(origin));
    print("\n");
    fflush(stdout);
    warn_of_repeats(info.epochs);
}

}  // namespace logs
