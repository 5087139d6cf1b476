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
#include "llmc/io/shard.h"
#include "llmc/train/checkpoint.h"
#include "llmc/train/measure.h"
#include "llmc/train/model.h"
#include "llmc/train/votes.h"

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

// What is in the page cache of a folder's files is dropped, so that the disk is read.
void drop_cache(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const int file = open(entry.path().c_str(), O_RDONLY);
        CHECK_INPUT(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 && close(file) == 0,
                    "cannot drop %s from the cache", entry.path().c_str());
    }
}

double plain_read(const std::string& folder, std::byte* block) {
    return seconds([&] {
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
            const int file = open(entry.path().c_str(), O_RDONLY);
            while (read(file, block, 8 << 20) > 0) {}
            close(file);
        }
    });
}

// Whole steps of 256 tokens: forward, backward, clip, update.
struct Steps {
    const Config& cfg;
    Model& model;
    Dataset set;
    std::optional<Loader> loader;
    int64_t step = 0;

    Steps(const Config& c, Model& m, const std::string& dir) : cfg(c), model(m) {
        ShardWriter shard(dir + "/tokens", 50257, 0, 1 << 20);
        std::vector<uint16_t> ids(1 << 18);
        for (size_t i = 0; i < ids.size(); i++) ids[i] = uint16_t(i * 7919 % 50257);
        shard.append(std::span<const uint16_t>(ids));
        shard.finish();
        set = open_dataset("data.train", {{shard.paths.at(0)}}, cfg.model.context, 1, true);
        loader.emplace(set, cfg.train.micro_batch, 0);
    }
    double operator()() {
        return seconds([&] {
            const double share = model.pipeline.run(*loader);
            const Votes votes = vote(model.mesh.world, share, model.optimizer->local_squares(), {});
            (void)model.optimizer->set_norm(votes.squares, votes.loss);
            model.optimizer->update(1e-4, step++);
        });
    }
};

struct Times {      // in seconds, the best of each
    double write = 1e9, plain_write = 1e9, read = 1e9, plain_read = 1e9, stall = 1e9, copy = 1e9;
    double step = 1e9, step_writing = 1e9;
};

void measure(const Config& cfg, Model& model, const std::string& dir, Times& t) {
    Checkpoint checkpoint(cfg, model, "");
    Steps step(cfg, model, dir);
    RunState state;
    const auto sources = checkpoint.share.data(model.zero);
    const auto best = [](double& of, double now) { of = std::min(of, now); };
    for (int i = 0; i < 3; i++) {
        best(t.copy, seconds([&] {
            std::byte* to = model.snapshot;
            for (const auto& piece : sources) memcpy(to, piece.data(), piece.size()), to += piece.size();
        }));
        for (int s = 0; s < 3; s++) best(t.step, step());
        sync();
        state.step++;
        best(t.stall, seconds([&] { (void)checkpoint.save(state, false); }));
        double during = 0;
        int steps = 0;
        for (; checkpoint.saver.mine().done == 0; steps++) during += step();
        (void)checkpoint.finish();
        if (steps) best(t.step_writing, during / steps);

        sync();     // the same with nothing beside it, for the disk's sake
        state.step++;
        best(t.write, seconds([&] {
            (void)checkpoint.save(state, false);
            (void)checkpoint.finish();
        }));
        sync();
        best(t.plain_write, plain_write(dir + "/plain", model.snapshot, size_t(checkpoint.share.bytes)));
        const Origin origin = open_checkpoint(dir + "/step_" + std::to_string(state.step));
        drop_cache(origin.folder);
        best(t.plain_read, plain_read(origin.folder, model.snapshot));
        drop_cache(origin.folder);
        best(t.read, seconds([&] { load_state(model.zero, origin.folder, origin.manifest, true); }));
    }
}

void report(const Times& t, double bytes, size_t peak, size_t planned, FILE* json) {
    const double gb = bytes / 1e9, written = t.plain_write / t.write, read = t.plain_read / t.read;
    const double stall = t.stall / t.copy, over = double(peak) / double(planned) - 1;
    const auto verdict = [](bool met) { return met ? "ok" : "MISSED"; };
    printf("GPT-2 124M, %s of state, %d threads, best of 3\n\n", human_bytes(bytes).c_str(), context.threads);
    printf("  written  %6.2f GB/s  %5.2f of a plain write with fsync (%.2f GB/s)    0.8 asked   %s\n",
           gb / t.write, written, gb / t.plain_write, verdict(written >= 0.8));
    printf("  read     %6.2f GB/s  %5.2f of a plain read from the disk (%.2f GB/s)  0.8 asked   %s\n",
           gb / t.read, read, gb / t.plain_read, verdict(read >= 0.8));
    printf("  stall    %6.0f ms    %5.2f of a plain memcpy (%.0f ms)                1.5 at most %s\n",
           t.stall * 1e3, stall, t.copy * 1e3, verdict(stall <= 1.5));
    if (t.step_writing < 1e9)
        printf("  a step   %6.0f ms    %5.2f of one while nothing is written (%.0f ms)\n",
               t.step_writing * 1e3, t.step_writing / t.step, t.step * 1e3);
    printf("  memory   %s at most, %s planned                         2%% over    %s\n",
           human_bytes(double(peak)).c_str(), human_bytes(double(planned)).c_str(), verdict(over <= 0.02));
    if (!json) return;
    JsonLine line("checkpoint");
    line.add("commit", commit).add("device", cpu_name()).add("threads", context.threads);
    line.add("bytes", bytes).add("write_gbs", gb / t.write).add("plain_write_gbs", gb / t.plain_write);
    line.add("read_gbs", gb / t.read).add("plain_read_gbs", gb / t.plain_read);
    line.add("stall_ms", t.stall * 1e3).add("memcpy_ms", t.copy * 1e3).add("step_ms", t.step * 1e3);
    line.add("step_writing_ms", t.step_writing * 1e3);
    line.add("peak_bytes", uint64_t(peak)).add("plan_bytes", uint64_t(planned));
    fputs(line.str().c_str(), json);
}

void run(const std::string& dir, FILE* json) {
    std::filesystem::create_directories(dir);
    const Config cfg = config_124M(dir);
    Model model(cfg, Mesh(), cfg.train.micro_batch, false);
    model.warm_up();
    const PeakMemory memory{Axis()};
    model.allocate();
    model.zero.init_weights(1);
    Times times;
    measure(cfg, model, dir, times);
    const double bytes = double(Checkpoint(cfg, model, "").share.bytes);
    std::filesystem::remove_all(dir);
    report(times, bytes, memory.peak(), model.bytes(), json);
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
