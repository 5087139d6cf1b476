// make bench-checkpoint: what saving and going on cost, for GPT-2 124M with its full state (FP32 weights and
// both moments, 1.5 GB), against what the disk and the memory can do. See dev/bench_checkpoint.sh.
//
//     bench_checkpoint --dir=FOLDER [--json=FILE]
#include <fcntl.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/json.h"
#include "llmc/base/machine.h"
#include "llmc/base/version.h"
#include "llmc/train/checkpoint.h"
#include "llmc/train/measure.h"
#include "llmc/train/model.h"

namespace PRECISION {

namespace {

template <class F> double seconds(F&& f) {
    const auto begin = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Config config_124M(const std::string& dir) {
    Config cfg;
    cfg.model = {.layers = 12, .heads = 12, .channels = 768, .context = 64, .vocab = 50257, .init = "random"};
    cfg.train = {.steps = 1000, .batch_tokens = 64 * 4, .micro_batch = 4, .max_skips = 0};
    cfg.checkpoint.every = 1, cfg.checkpoint.keep_last = 1, cfg.checkpoint.async = true;
    cfg.run.dir = dir;
    return cfg;
}

// As dd does: blocks of 8 MiB, then fsync.
double plain_write(const std::string& path, const std::byte* data, size_t bytes) {
    return seconds([&] {
        const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
        for (size_t at = 0; at < bytes; at += 8 << 20)
            CHECK_INPUT(write(file, data + at, std::min<size_t>(8 << 20, bytes - at)) > 0, "cannot write %s",
                        path.c_str());
        CHECK_INPUT(fsync(file) == 0 && close(file) == 0, "cannot sync %s", path.c_str());
    });
}

struct Step {
    Model& model;
    Batch batch;
    double operator()() {
        return seconds([&] {
            model.zero.begin_step({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
            model.gpt.forward(model.zero, batch, 0, 0);
        });
    }
};

void run(const std::string& dir, FILE* json) {
    std::filesystem::create_directories(dir);
    const Config cfg = config_124M(dir);
    Model model(cfg, Mesh(), cfg.train.micro_batch, false);
    model.warm_up();
    const PeakMemory memory{Axis()};
    model.allocate();
    model.zero.init_weights(1);
    Checkpoint checkpoint(cfg, model, "");
    const size_t bytes = size_t(checkpoint.share.bytes);
    const std::vector<int32_t> tokens(64 * 4, 5);
    Step step{model, {.tokens = tokens.data(), .targets = tokens.data(), .B = 4, .T = 64}};
    RunState state;

    double copy = 1e9, stall = 1e9, save = 1e9, disk = 1e9, load = 1e9, quiet = 1e9, busy = 1e9;
    const auto sources = checkpoint.share.data(model.zero);
    for (int i = 0; i < 3; i++) {
        copy = std::min(copy, seconds([&] {
            std::byte* to = model.snapshot;
            for (const auto& piece : sources) memcpy(to, piece.data(), piece.size()), to += piece.size();
        }));
        for (int s = 0; s < 3; s++) quiet = std::min(quiet, step());
        sync();
        state.step++;
        stall = std::min(stall, seconds([&] { (void)checkpoint.save(state, false); }));
        double during = 0;
        int steps = 0;
        const double rest = seconds([&] {
            while (checkpoint.saver.mine().done == 0) during += step(), steps++;
            (void)checkpoint.finish();
        });
        save = std::min(save, rest);
        if (steps) busy = std::min(busy, during / steps);
        sync();
        disk = std::min(disk, plain_write(dir + "/plain", model.snapshot, bytes));
        const Origin origin = open_checkpoint(dir + "/step_" + std::to_string(state.step));
        load = std::min(load, seconds([&] { load_state(model.zero, origin.folder, origin.manifest, true); }));
    }
    std::filesystem::remove_all(dir);
    const double gb = double(bytes) / 1e9;
    printf("GPT-2 124M, %s of state, %d threads, best of 3\n", human_bytes(double(bytes)).c_str(),
           context.threads);
    printf("  written  %6.2f GB/s beside training  %.2f of a plain write with fsync, %.2f GB/s (asked 0.8)\n",
           gb / save, disk / save, gb / disk);
    printf("  read     %6.2f GB/s from the page cache\n", gb / load);
    printf("  stall    %6.0f ms                    %.2f of a plain memcpy, %.0f ms (asked 1.5 at most)\n",
           stall * 1e3, stall / copy, copy * 1e3);
    printf("  forward  %6.0f ms while it writes    %.2f of one alone, %.0f ms\n", busy * 1e3, busy / quiet,
           quiet * 1e3);
    printf("  memory   %s at most, %s planned\n", human_bytes(double(memory.peak())).c_str(),
           human_bytes(double(model.bytes())).c_str());
    if (!json) return;
    JsonLine line("checkpoint");
    line.add("bytes", uint64_t(bytes)).add("threads", context.threads).add("write_gbs", gb / save);
    line.add("disk_gbs", gb / disk).add("read_gbs", gb / load).add("stall_ms", stall * 1e3);
    line.add("memcpy_ms", copy * 1e3).add("forward_ms", quiet * 1e3).add("forward_writing_ms", busy * 1e3);
    line.add("peak_bytes", uint64_t(memory.peak())).add("plan_bytes", uint64_t(model.bytes()));
    line.add("device", cpu_name());
    fputs(line.str().c_str(), json);
}

}  // namespace

void bench_checkpoint(const std::string& dir, FILE* json) { run(dir, json); }

}  // namespace PRECISION

namespace fp32 { void bench_checkpoint(const std::string& dir, FILE* json); }

// One object of the three provides it.
[[gnu::weak]] int main(int argc, char** argv) {
    std::string dir, to;
    for (int i = 1; i < argc; i++) {
        const std::string a = argv[i];
        if (a.starts_with("--dir=")) dir = a.substr(6);
        else if (a.starts_with("--json=")) to = a.substr(7);
        else CHECK_INPUT(false, "usage: bench_checkpoint --dir=FOLDER [--json=FILE]");
    }
    CHECK_INPUT(!dir.empty(), "usage: bench_checkpoint --dir=FOLDER [--json=FILE]");
    context.threads = cores();
    omp_set_num_threads(context.threads);
    FILE* json = to.empty() ? nullptr : fopen(to.c_str(), "w");
    CHECK_INPUT(to.empty() || json, "%s cannot be written", to.c_str());
    fp32::bench_checkpoint(dir, json);
    if (json) fclose(json);
}
