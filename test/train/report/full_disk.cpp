// Files of a run on a disk that fills up: they lose whole rows, each tells once, and training goes on.
#include <filesystem>

#include "llmc/train/report/event_file.h"
#include "test/task_file.h"

using std::string;
using namespace test;

// Bytes of the records that are whole, by their lengths.
static size_t whole_records(const string& events) {
    size_t at = 0;
    for (uint64_t length = 0; at + 16 <= events.size(); at += length + 16) {
        memcpy(&length, &events[at], sizeof length);
        if (at + length + 16 > events.size()) break;
    }
    return at;
}

// Makes a small disk at `disk`; size: as mount takes it. false: not allowed here, and the test is skipped.
static bool mounted(const string& disk, const string& size) {
    std::filesystem::create_directories(disk);
    if (run("mount -t tmpfs -o size=" + size + " none " + disk).code == 0) return true;
    skip("mounting a small disk is not allowed here");
    return false;
}

TEST(a_disk_that_fills_up_costs_whole_rows) {
    const string disk = folder("small_disk"), run_dir = disk + "/run";
    if (!mounted(disk, "48k")) return;
    json changes = text_config();
    const string task = task_file("last", R"("accuracy": "greedy")", {{"the small", {" model"}}});
    changes.merge_patch({{"run", {{"dir", run_dir}}}, {"train", {{"steps", 400}}}, {"sample", {{"every", 0}}},
                         {"checkpoint", {{"every", 0}}},
                         {"log", {{"tensorboard", true}, {"prometheus", disk + "/run.prom"}, {"every", 0}}},
                         {"eval", {{"every", 0}, {"tasks", {task}}, {"task_every", 400}}}});
    std::filesystem::create_directories(folder("small_disk/run"));
    const Ran ran = train_gpt(tiny_program_config("on_small_disk", changes));
    EXPECT(ran.code == 0 && ran.out.find("done    400 steps") != string::npos, "code %d, '%s'", ran.code,
           ran.err.c_str());
    for (const string file : {"metrics.jsonl", EventFile::kName, "answers of last"})
        EXPECT(count_of(ran.err, file) == 1, "%s: '%s'", file.c_str(), ran.err.c_str());
    std::istringstream rows(text_of(run_dir + "/metrics.jsonl"));
    size_t steps = 0;
    for (string row; std::getline(rows, row); steps++)
        EXPECT(json::accept(row) && !rows.eof(), "row %zu: '%s'", steps + 1, row.c_str());
    const string events = text_of(run_dir + "/" + EventFile::kName);
    EXPECT(steps > 50 && steps < 400, "%zu rows", steps);
    EXPECT(events.size() > 1000 && whole_records(events) == events.size(), "%zu of %zu bytes",
           whole_records(events), events.size());
    // their rows may be short enough for what is left
    const string scores = text_of(run_dir + "/evals.jsonl");
    EXPECT(scores.ends_with("}\n"), "'%s'", scores.c_str());
    EXPECT(count_of(scores, "\"task\",\"step\"") + count_of(ran.err, "scores of last") == 2, "'%s'",
           scores.c_str());
    const string prom = text_of(disk + "/run.prom");
    EXPECT(prom.empty() || prom.ends_with("\n"), "'%s'", prom.c_str());
    EXPECT(run("umount " + disk).code == 0, "%s stays", disk.c_str());
}

// Checkpoints have room, then something else fills the disk.
TEST(a_run_resumes_on_a_full_disk) {
    const string disk = folder("full_disk"), run_dir = disk + "/run";
    if (!mounted(disk, "4m")) return;
    json changes = text_config();
    changes.merge_patch({{"run", {{"dir", run_dir}}}, {"train", {{"steps", 2}}}, {"sample", {{"every", 0}}},
                         {"eval", {{"every", 0}}}, {"checkpoint", {{"every", 2}}}});
    const string config = tiny_program_config("on_full_disk", changes);
    EXPECT(train_gpt(config).code == 0);
    const string before = text_of(run_dir + "/config.json");
    EXPECT(run("./train_gpt " + config + " --report").code == 0);
    const string page = run_dir + "/report.html", report = text_of(page);
    run("head -c 8m /dev/zero > " + disk + "/other");
    const Ran again = run("./train_gpt " + config + " --report");
    EXPECT(again.code == 78 && count_of(again.err, "No space left") == 1 && text_of(page) == report,
           "%d '%s'", again.code, again.err.c_str());
    const Ran ran = train_gpt(config + " --train.steps=4 --checkpoint.every=0 "
                              "'--checkpoint.override=[\"train.steps\"]'");
    EXPECT(ran.code == 0 && ran.out.find("done    4 steps") != string::npos, "code %d, '%s'", ran.code,
           ran.err.c_str());
    EXPECT(count_of(ran.err, "cannot write " + run_dir + "/config.json: No space left") == 1, "'%s'",
           ran.err.c_str());
    EXPECT(text_of(run_dir + "/config.json") == before, "config.json is cut");
    EXPECT(run("umount " + disk).code == 0, "%s stays", disk.c_str());
}
