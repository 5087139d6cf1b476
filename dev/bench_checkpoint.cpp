// make bench-checkpoint: costs of saving and resuming, for GPT-2 124M with its full state (FP32 weights and
// both moments, 1.5 GB), against the rates of disk and memory. See dev/bench_checkpoint.sh.
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
#include "llmc/base/host/machine.h"
#include "llmc/base/host/version.h"
#include "llmc/base/json/json.h"
#include "llmc/comm/votes.h"
#include "llmc/io/files/shard_writer.h"
#include "llmc/train/run/peaks.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/save/recover.h"

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
    cfg.checkpoint.every = 1, cfg.checkpoint.keep_last = 0, cfg.checkpoint.async = true;
    cfg.run.dir = dir;
    return cfg;
}

// As dd does: blocks of 8 MiB, then fsync.
double plain_write(const std::string& path, const std::byte* data, size_t bytes) {
    return seconds([&] {
        const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
        for (size_t at = 0, n; at < bytes; at += n) {
            n = std::min<size_t>(8 << 20, bytes - at);
            CHECK_INPUT(write(file, data + at, n) == ssize_t(n), "cannot write {}", path);
        }
        CHECK_INPUT(fsync(file) == 0 && close(file) == 0, "cannot sync {}", path);
    });
}

// Drops a folder's files from the page cache: the next read is from the disk.
void drop_cache(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const int file = open(entry.path().c_str(), O_RDONLY);
        CHECK_INPUT(file >= 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 && close(file) == 0,
                    "cannot drop {} from the cache", entry.path().string());
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
        shard.close();
        publish({&shard, 1});
        set = open_dataset("data.train", {{shard.paths.at(0)}}, cfg.model.context, 1, true);
        loader.emplace(set, cfg.train.micro_batch, 0);
    }
    double operator()() {
        return seconds([&] {
            model.pipeline.run(*loader);
            enqueue_update(model, 1e-4, step++);
            (void)model.statistics->read();
        });
    }
};

constexpr int kRounds = 3;

struct Times {      // in seconds, of each round
    std::vector<double> write, plain_write, read, verify, plain_read, stall, copy, step, step_writing, beside;
};

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
}

// Nothing of an earlier round is left to write or to remove while the clock runs.
void clear(const std::string& dir) {
    for (const auto& entry : std::filesystem::directory_iterator(dir)) {
        const std::string name = entry.path().filename();
        if (name == "plain" || name.starts_with("step_")) std::filesystem::remove_all(entry.path());
    }
    sync();
}

// A save beside training, until its acknowledgement.
void save_beside(Checkpoint& checkpoint, RunState& state, Steps& step, Times& t) {
    for (int s = 0; s < 2; s++) t.step.push_back(step());
    state.step++;
    t.beside.push_back(seconds([&] {
        t.stall.push_back(seconds([&] { checkpoint.save(state, false); }));
        while (checkpoint.votes.mine[kSaveDone] == 0) t.step_writing.push_back(step());
        checkpoint.finish();
    }));
}

// A save and a plain write of the same bytes to the same disk, with nothing else running; then reads of both.
void write_and_read(Checkpoint& checkpoint, Model& model, RunState& state, const std::string& dir, bool first,
                    Times& t) {
    state.step++;
    clear(dir);
    for (const bool saves : {first, !first}) {
        if (saves) t.write.push_back(seconds([&] {
            checkpoint.save(state, false);
            checkpoint.finish();
        }));
        else t.plain_write.push_back(plain_write(dir + "/plain", model.snapshot,
                                                 size_t(checkpoint.share.bytes)));
        sync();
    }
    const Origin origin = open_checkpoint(dir + "/step_" + std::to_string(state.step));
    drop_cache(origin.folder);
    (void)plain_read(origin.folder, model.snapshot);    // a cache below a virtual machine is warm for both
    for (const bool loads : {first, !first}) {
        drop_cache(origin.folder);
        if (loads) t.read.push_back(seconds([&] {
            restore(model.shards, checkpoint_state(origin.folder, origin.manifest), true);
        }));
        else t.plain_read.push_back(plain_read(origin.folder, model.snapshot));
    }
    drop_cache(origin.folder);
    t.verify.push_back(seconds([&] { (void)verify_checkpoint(posix_disk(), origin.folder); }));
}

void measure(const Config& cfg, Model& model, const std::string& dir, Times& t) {
    Checkpoint checkpoint(cfg, model.shards, model.votes, model.snapshot, {}, model.images);
    Steps step(cfg, model, dir);
    RunState state;
    const auto sources = checkpoint.share.data(model.shards);
    for (int i = 0; i < kRounds; i++) {
        t.copy.push_back(seconds([&] {
            std::byte* to = model.snapshot;
            for (const auto& piece : sources) memcpy(to, piece.data(), piece.size()), to += piece.size();
        }));
        clear(dir);
        save_beside(checkpoint, state, step, t);
        write_and_read(checkpoint, model, state, dir, i % 2 == 0, t);
    }
}

void report(const Times& all, double bytes, size_t peak, size_t planned, FILE* json) {
    const double gb = bytes / 1e9, write = median(all.write), plain_write = median(all.plain_write);
    const double read = median(all.read), plain_read = median(all.plain_read), verify = median(all.verify);
    const double stall = median(all.stall), copy = median(all.copy), step = median(all.step);
    const double step_writing = median(all.step_writing), beside = median(all.beside);
    const double over = double(peak) / double(planned) - 1;
    const auto outcome = [](bool met) { return met ? "ok" : "MISSED"; };
    printf("GPT-2 124M, %s of state, %d threads, medians of %d\n\n", human_bytes(bytes).c_str(),
           context.threads, kRounds);
    printf("  written  %6.2f GB/s  %5.2f of a plain write with fsync (%.2f GB/s)    0.8 asked   %s\n",
           gb / write, plain_write / write, gb / plain_write, outcome(plain_write / write >= 0.8));
    printf("  read     %6.2f GB/s  %5.2f of a plain read from the disk (%.2f GB/s)  0.8 asked   %s\n",
           gb / read, plain_read / read, gb / plain_read, outcome(plain_read / read >= 0.8));
    printf("  verified %6.2f GB/s  %5.2f of it: before a run goes on, rank 0 looks at all hashes\n",
           gb / verify, plain_read / verify);
    printf("  stall    %6.0f ms    %5.2f of a plain memcpy (%.0f ms)                1.5 at most %s\n",
           stall * 1e3, stall / copy, copy * 1e3, outcome(stall / copy <= 1.5));
    printf("  a step   %6.0f ms    %5.2f of one while nothing is written (%.0f ms)\n", step_writing * 1e3,
           step_writing / step, step * 1e3);
    printf("  a save   %6.2f s     beside %.1f such steps; %.2f s where training waits\n", beside,
           double(all.step_writing.size()) / kRounds, write);
    printf("  memory   %s at most, %s planned                         2%% over    %s\n",
           human_bytes(double(peak)).c_str(), human_bytes(double(planned)).c_str(), outcome(over <= 0.02));
    if (!json) return;
    JsonLine line("checkpoint");
    line.add("commit", commit).add("device", cpu_name()).add("threads", context.threads);
    line.add("medians_of", kRounds).add("bytes", bytes);
    line.add("write_gbs", gb / write).add("plain_write_gbs", gb / plain_write);
    line.add("read_gbs", gb / read).add("plain_read_gbs", gb / plain_read);
    line.add("verify_gbs", gb / verify);
    line.add("stall_ms", stall * 1e3).add("memcpy_ms", copy * 1e3);
    line.add("step_ms", step * 1e3).add("step_writing_ms", step_writing * 1e3).add("beside_s", beside);
    line.add("peak_bytes", uint64_t(peak)).add("plan_bytes", uint64_t(planned));
    fputs(line.str().c_str(), json);
}

void run(const std::string& dir, FILE* json) {
    std::filesystem::create_directories(dir);
    const Config cfg = config_124M(dir);
    Model model(cfg, Mesh(), cfg.train.micro_batch, false);
    warm_up(cfg, model);
    const Axis alone;
    const PeakMemory memory(alone);
    model.allocate();
    restore(model.shards, random_weights(model.shards.d, 1));
    Times times;
    measure(cfg, model, dir, times);
    const Checkpoint checkpoint(cfg, model.shards, model.votes, model.snapshot, {}, model.images);
    const double bytes = double(checkpoint.share.bytes);
    std::filesystem::remove_all(dir);
    report(times, bytes, memory.peak(), model.bytes(), json);
}

}  // namespace

void bench_checkpoint(const std::string& dir, FILE* json) { run(dir, json); }

}  // namespace PRECISION

namespace fp32 { void bench_checkpoint(const std::string& dir, FILE* json); }

// Defined by the object of a precision.
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
    CHECK_INPUT(to.empty() || json, "{} cannot be written", to);
    fp32::bench_checkpoint(dir, json);
    if (json) fclose(json);
}
