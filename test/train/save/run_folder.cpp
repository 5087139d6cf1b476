// Checkpoints of a folder, checkpoints to keep, and folders a run may use.
#include "llmc/train/save/run_folder.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/json/json_value.h"
#include "llmc/train/log/log.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/save/save.h"
#include "test/saving.h"

namespace fs = std::filesystem;
using Steps = std::vector<int64_t>;

static std::string folder_with(const std::vector<std::string>& names) {
    static int count = 0;
    const std::string dir = test::temporary_directory() + "/folder" + std::to_string(count++);
    for (const auto& n : names) fs::create_directories(dir + "/" + n);
    return dir;
}

static Steps after_pruning(int keep_last, int64_t keep_every) {
    const std::string dir =
        folder_with({"step_5", "step_10", "step_15", "step_20", "step_25", "step_99.damaged", "other"});
    CheckpointConfig cfg;
    cfg.keep_last = keep_last, cfg.keep_every = keep_every;
    const Disk disk = posix_disk();
    DiskQueue q = prune_checkpoints(disk, cfg, dir);
    q.run();
    EXPECT(q.error.empty(), "%s", q.error.c_str());
    EXPECT(fs::exists(dir + "/other") && fs::exists(dir + "/step_99.damaged"), "others are gone");
    return saved_steps(disk, dir);
}

TEST(steps_are_numbers) {
    const std::string dir = folder_with(
        {"step_9", "step_10", "step_100", "step_", "step_7x", "step_200.tmp-1", "Step_300", "step_x",
         "step_0012", "step_+5", "step_-0", "step_-1", "step_00", "step_ 8", "step_99999999999999999999"});
    write_file(dir + "/step_11", "a file");
    fs::create_symlink("step_12", dir + "/step_12");        // leads to itself
    const Steps steps = saved_steps(posix_disk(), dir);
    EXPECT((steps == Steps{9, 10, 100}), "%zu checkpoints", steps.size());
}

// By number, among checkpoints that pass verification; other folders stay.
TEST(the_newest_that_verifies) {
    const std::string dir = folder_with({"step_300.tmp-1", "x"});
    EXPECT(newest_checkpoint("/nowhere/at/all").folder == "" && newest_checkpoint(dir).folder == "", "none");
    for (const int64_t step : {9, 10, 100}) EXPECT(test::save(posix_disk(), dir, step, 1, 1) == "", "saved");
    EXPECT(newest_checkpoint(dir).folder == dir + "/step_100", "'%s'", newest_checkpoint(dir).folder.c_str());
    std::string share = read_file(dir + "/step_100/rank_00000.safetensors");
    share.back() ^= 1;
    write_file(dir + "/step_100/rank_00000.safetensors", share);
    EXPECT(newest_checkpoint(dir).folder == dir + "/step_10", "'%s'", newest_checkpoint(dir).folder.c_str());
    fs::remove(dir + "/step_10/manifest.json");
    EXPECT(newest_checkpoint(dir).folder == dir + "/step_9", "'%s'", newest_checkpoint(dir).folder.c_str());
    EXPECT((saved_steps(posix_disk(), dir) == Steps{9, 10, 100}), "a look changes nothing");
    const Fatal e = test::fatal_of([&] { verify_init(dir + "/step_100"); });
    EXPECT(e.code == kExitCheckpoint && strstr(e.what(), "damaged") && strstr(e.what(), "rank_00000"),
           "code %d, '%s'", e.code, e.what());
}

// A run beside the program prunes what it is about to read: the next one is the newest.
TEST(a_checkpoint_that_vanishes_means_the_next) {
    const std::string dir = folder_with({""});
    EXPECT(test::save(posix_disk(), dir, 2, 1, 1) == "", "saved");
    Disk disk = posix_disk();
    disk.read = [&, below = disk.read](Disk::Path path, void* to, size_t bytes, uint64_t at) {
        if (fs::exists(dir + "/step_2")) {
            fs::remove_all(dir + "/step_2");
            EXPECT(test::save(posix_disk(), dir, 4, 1, 1) == "", "saved");
        }
        return below(path, to, bytes, at);
    };
    std::string found;
    const std::string said = test::captured(2, [&] { found = newest_checkpoint(dir, {}, disk).folder; });
    EXPECT(found == dir + "/step_4" && said.empty(), "'%s' '%s'", found.c_str(), said.c_str());
}

TEST(a_checkpoint_that_is_read_is_not_pruned) {
    const std::string dir = folder_with({""});
    for (const int64_t step : {2, 4}) EXPECT(test::save(posix_disk(), dir, step, 1, 1) == "", "saved");
    CheckpointConfig keep;
    keep.keep_last = 1;
    const Disk disk = posix_disk();
    const auto prune = [&] {
        DiskQueue q = prune_checkpoints(disk, keep, dir);
        q.run();
        EXPECT(q.error.empty(), "%s", q.error.c_str());
        return saved_steps(disk, dir);
    };
    {
        const HeldCheckpoint held = newest_checkpoint(dir), older = hold_checkpoint(dir + "/step_2");
        EXPECT(held.lock && older.lock && (prune() == Steps{2, 4}), "it is read");
    }
    EXPECT((prune() == Steps{4}), "it is read no more");
}

TEST(the_newest_are_kept) {
    EXPECT((after_pruning(0, 0) == Steps{5, 10, 15, 20, 25}), "keep_last = 0 keeps all");
    EXPECT((after_pruning(2, 0) == Steps{20, 25}), "keep_last = 2");
    EXPECT((after_pruning(1, 10) == Steps{10, 20, 25}), "keep_last = 1, keep_every = 10");
    EXPECT((after_pruning(9, 0) == Steps{5, 10, 15, 20, 25}), "keep_last = 9");
}

// Exit code of a start in the folder; 0: the run may begin.
static int code_of(const std::string& dir, const std::string& resume) {
    Config cfg;
    cfg.run.dir = dir, cfg.checkpoint.resume = resume;
    return test::fatal_of([&] { check_run_dir(cfg); }).code;
}

TEST(folders_that_a_run_may_use) {
    const std::string fresh = folder_with({}), run = folder_with({"step_5"}), stopped = folder_with({""}),
                      finished = folder_with({""}), others = folder_with({""});
    write_file(run + "/metrics.jsonl", "{\"event\":\"start\"}\n{\"event\":\"done\",\"step\":5}\n");
    write_file(stopped + "/metrics.jsonl", "{\"event\":\"start\"}\n");
    write_file(finished + "/metrics.jsonl", "{\"event\":\"start\"}\n{\"event\":\"done\",\"step\":5}\n");
    std::filesystem::resize_file(stopped + "/metrics.jsonl", 2 * kMostRead);
    write_file(others + "/config.json", "{}");
    EXPECT(code_of(fresh, "auto") == 0 && code_of(fresh, "never") == 0, "a new folder");
    EXPECT(code_of(run, "auto") == 0 && code_of(run, "never") == 78, "a run with a checkpoint");
    EXPECT(code_of(stopped, "auto") == 0 && code_of(stopped, "never") == 78, "stopped before its first one");
    EXPECT(code_of(finished, "auto") == 78 && code_of(finished, "never") == 78, "finished without one");
    EXPECT(code_of(others, "auto") == 78 && code_of(others, "never") == 78, "a config.json of others");
}

// The rest of a row that a kill or a full disk has cut: the next row begins on a line of its own.
TEST(no_acknowledgement_continues_a_part_of_a_row) {
    const std::string dir = folder_with({""}), rows = dir + "/checkpoints.jsonl";
    EXPECT(test::save(posix_disk(), dir, 3, 1, 1) == "", "step 3");
    const std::string whole = read_file(rows);
    write_file(rows, whole + "{\"step\":4,\"di");
    EXPECT(test::save(posix_disk(), dir, 5, 1, 1) == "", "step 5");
    const std::string after = read_file(rows);
    EXPECT(after.starts_with(whole + "{\"step\":5,") && after.ends_with("}\n"), "'%s'", after.c_str());
}

// What --report and log.prometheus name may replace nothing but an output of its kind.
TEST(outputs_that_replace_no_file_of_a_run) {
    const std::string dir = folder_with({"step_5", "ranks", "answers"}), others = folder_with({"answers"});
    write_file(dir + "/step_5/manifest.json", "{}");
    write_file(dir + "/metrics.jsonl", "{}\n");
    fs::create_symlink(dir + "/step_5", others + "/link");
    fs::create_symlink(dir + "/metrics.jsonl", others + "/page.html");
    write_file(others + "/thesis.html", "\\documentclass");
    write_file(others + "/empty.html", "");
    write_file(others + "/old.html", "<!doctype html> of last week");
    const auto code = [](const std::string& path) {
        return test::fatal_of([&] { check_output("--report", path, "<!doctype html>"); }).code;
    };
    for (const char* name : {"metrics.jsonl", "config.json", "evals.jsonl", "checkpoints.jsonl",
                             "kernels.txt", "train_gpt.lock", "step_9", "events.out.tfevents.1",
                             "trace_step_3.json", "step_5/manifest.json", "step_5/rank_00000.safetensors",
                             "step_5/page.html", "ranks/0.json", "answers/piqa.jsonl",
                             "step_5/../metrics.jsonl"})
        EXPECT(code(dir + "/" + name) == kExitConfig, "%s", name);
    for (const char* name : {"link/page.html", "page.html", "thesis.html", "answers", "step_5.old"})
        EXPECT(code(others + "/" + name) == kExitConfig, "%s", name);
    for (const char* name : {"empty.html", "old.html", "new.html", "answers/new.html", "step_by_step.html",
                             "step_5_train_000000.bin"})
        EXPECT(code(others + "/" + name) == 0, "%s", name);
    EXPECT(code(dir + "/report.html") == 0, "a report beside the run");
    for (const char* mark : {"metrics.jsonl", "train_gpt.lock"}) {      // the folders are yet to be made
        const std::string run = folder_with({""});
        EXPECT(code(run + "/answers") == 0, "a folder that is no run's");
        write_file(run + "/" + mark, "");
        for (const char* name : {"ranks", "ranks_that_read", "answers", "ranks/0.json"})
            EXPECT(code(run + "/" + name) == kExitConfig, "%s beside %s", name, mark);
    }
}

// A file that may not grow stands for a full disk: a warning, once, and only whole rows.
TEST(metrics_on_a_full_disk) {
    Config c;
    c.run.dir = folder_with({""});
    const std::string file = c.run.dir + "/metrics.jsonl";
    std::string warning;
    const auto former = signal(SIGXFSZ, SIG_IGN);
    test::captured(1, [&] {
        RunState state;
        RunLog log(c);
        log.start(c, {}, "", state);
        rlimit before;
        getrlimit(RLIMIT_FSIZE, &before);
        const rlimit little = {std::filesystem::file_size(file) + 70, before.rlim_max};
        const auto row = [&](int64_t step) { log.val(step, 1.5, std::nullopt); };
        row(1);                                     // 45 bytes
        setrlimit(RLIMIT_FSIZE, &little);
        warning = test::captured(2, [&] { row(2), row(3); });
        setrlimit(RLIMIT_FSIZE, &before);
        row(4);
    });
    signal(SIGXFSZ, former);
    std::ifstream rows(file);
    std::vector<int64_t> steps;
    for (std::string row; std::getline(rows, row);)
        if (const Json r = parse_json(row); r.at("event").string() == "val")
            steps.push_back(r.at("step").integer());
    EXPECT((steps == std::vector<int64_t>{1, 4}), "%zu rows", steps.size());
    EXPECT(warning.starts_with("warning: cannot write to " + file + ": File too large; ") &&
               warning.find('\n') == warning.size() - 1, "'%s'", warning.c_str());
}
