// One start at a time in run.dir: its lock, and the programs.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "llmc/base/context.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/host/machine.h"
#include "llmc/train/save/run_folder.h"
#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

static Fatal refused(const string& dir) { return fatal_of([&] { const RunLock lock(dir); }); }

static void expect_refused(const string& dir, const std::vector<string>& words) {
    const Fatal e = refused(dir);
    EXPECT(e.code == kExitConfig, "code %d, '%s'", e.code, e.what());
    for (const string& w : words) EXPECT(strstr(e.what(), w.c_str()), "no '%s' in '%s'", w.c_str(), e.what());
}

TEST(a_start_beside_another_is_refused) {
    const string dir = folder("lock/of/one"),
    holder = fmt::format("process {} on ", int(getpid())) + host_name();
    {
        const RunLock first(dir);
        write_file(dir + "/metrics.jsonl", "");
        expect_refused(dir, {dir, holder, "--run.dir="});
        fs::create_directory_symlink(dir, folder("other_name"));
        expect_refused(folder("other_name"), {holder});
    }
    EXPECT(refused(dir).code == 0 && fs::exists(dir + "/" + kLockFile), "the lock is free, the file stays");
    fs::create_directories(folder("empty"));
    { const RunLock lock(folder("empty")), inner(folder("empty/a/b")); }
    EXPECT(fs::is_empty(folder("empty")), "a start that fails leaves something");
}

TEST(of_starts_at_once_one_has_the_lock) {
    const string dir = folder("lock_race");
    std::atomic<int> holders = 0, others = 0;
    std::atomic<bool> over = false;
    std::vector<std::thread> starts;
    for (int i = 0; i < 8; i++)
        starts.emplace_back([&] {
            context.throw_on_fatal = true;
            try {
                const RunLock lock(dir);
                holders++;
                while (!over) usleep(1000);
            } catch (const Fatal&) { if (++others == 7) over = true; }
        });
    for (std::thread& t : starts) t.join();
    EXPECT(holders == 1 && others == 7, "%d hold it", int(holders));
}

// A run that is killed leaves its name in the file, and no lock.
TEST(a_killed_run_leaves_no_lock) {
    const string dir = folder("lock_killed");
    int ready[2];
    EXPECT(pipe(ready) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        const RunLock lock(dir);
        (void)!write(ready[1], "x", 1);
        for (;;) pause();
    }
    char x;
    EXPECT(read(ready[0], &x, 1) == 1, "no word of the child");
    expect_refused(dir, {fmt::format("process {} on ", int(child))});
    kill(child, SIGKILL);
    EXPECT(refused(dir).code == 0, "refused at once after the kill");
    waitpid(child, nullptr, 0);
    close(ready[0]), close(ready[1]);
}

// The lock names its holder in the file: no other file may be in its place.
TEST(a_lock_is_a_file_of_its_own) {
    const string dir = folder("lock_place"), lock = dir + "/" + kLockFile, target = folder("lock_target");
    fs::create_directories(dir);
    write_file(target, "precious");
    fs::create_symlink(target, lock);
    expect_refused(dir, {kLockFile, "is a link"});
    fs::remove(lock), fs::create_hard_link(target, lock);
    expect_refused(dir, {kLockFile, "is a link"});
    fs::remove(lock), mkfifo(lock.c_str(), 0666);
    expect_refused(dir, {kLockFile, "a pipe"});
    EXPECT(read_file(target) == "precious", "the target has '%s'", read_file(target).c_str());
    fs::remove(lock), write_file(lock, "x\x1b[2J" + string(5000, 'y'));
    write_file(dir + "/metrics.jsonl", "");
    const string holder = fmt::format("process {} on ", int(getpid())) + host_name() + "\n";
    EXPECT(refused(dir).code == 0, "a lock of any text");
    EXPECT(read_file(lock) == holder, "'%s'", read_file(lock).c_str());
}

TEST(a_run_dir_that_cannot_be) {
    write_file(folder("a_file"), "x");
    expect_refused(folder("a_file/x"), {"cannot make run.dir", "a_file/x", "Not a directory"});
    expect_refused(folder("a_file"), {"a_file", "Not a directory"});
    expect_refused("/proc/nope", {"cannot make run.dir /proc/nope"});
    if (geteuid() == 0) return;
    fs::create_directories(folder("closed"));
    chmod(folder("closed").c_str(), 0500);
    expect_refused(folder("closed"), {"cannot write to run.dir", "Permission denied"});
}

// ---------------------------------------------------------------------------------------------------------
// the programs

// The first stops itself before it has written anything, until the second has ended.
static string first_start(const string& config) {
    const string stamp = config + ".stamp";
    return "FAULT=start:0:stop FAULT_STAMP=" + stamp + " ./train_gpt " + config + " & pid=$!\n"
           "i=0; until [ -e " + stamp + " ]; do sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || break; done\n";
}
static const char* const kLetGoOn = "while kill -0 $pid 2>/dev/null; do kill -CONT $pid; sleep 0.05; done\n"
                                    "wait $pid; echo \"first $?\"\n";

TEST(a_second_start_leaves_the_first_alone) {
    const json saves = {{"checkpoint", {{"every", 5}}}};
    const string config = tiny_program_config("two", saves), alone = tiny_program_config("alone", saves);
    const string dir = folder("two"), before = folder("two_before");
    const Ran ran = run(first_start(config) + "cp -r " + dir + " " + before + "\n" +
                        "./train_gpt " + config + " --optimizer.lr=0.5; echo \"second $?\"\n" +
                        "./train_gpt " + config + " --plan >/dev/null; echo \"plan $?\"\n" +
                        "diff -r " + dir + " " + before + "; echo \"diff $?\"\n" + kLetGoOn);
    for (const char* word : {"second 78", "plan 0", "diff 0", "first 0"})
        EXPECT(strstr(ran.out.c_str(), word), "no '%s' in '%s' '%s'", word, ran.out.c_str(), ran.err.c_str());
    const string text = text_of(dir + "/" + kLockFile), holder = text.substr(0, text.find('\n'));
    EXPECT(!holder.empty() && strstr(ran.err.c_str(), holder.c_str()), "'%s'", ran.err.c_str());
    EXPECT(train_gpt(alone).code == 0 && timeless("two") == timeless("alone"), "rows of the first");
    EXPECT(text_of(folder("two/step_10/rank_00000.safetensors")) ==
           text_of(folder("alone/step_10/rank_00000.safetensors")), "weights of the first");
}

// Who only reads is never refused, and makes no file.
TEST(readers_need_no_lock) {
    const string config = tiny_program_config("lock_read", {{"checkpoint", {{"every", 5}}}}),
                 dir = folder("lock_read");
    EXPECT(train_gpt(config).code == 0, "a run");
    fs::remove(dir + "/" + kLockFile);
    const Ran alone = train_gpt(config, "--export=llmc:" + folder("alone.bin"));
    EXPECT(alone.code == 0 && !fs::exists(dir + "/" + kLockFile), "'%s'", alone.err.c_str());
    const RunLock lock(dir);
    for (const string& args : {"--export=llmc:" + folder("beside.bin"), string("--plan")}) {
        const Ran beside = train_gpt(config, args);
        EXPECT(beside.code == 0, "%s: '%s'", args.c_str(), beside.err.c_str());
    }
}

// Ranks as threads: rank 0 has the lock for all.
TEST(ranks_share_a_lock) {
    const json ranks = {{"parallel", {{"ranks", 2}}}};
    const string config = tiny_program_config("lock_ranks", ranks);
    const Ran ran = run(first_start(config) + "./train_gpt " + config + "; echo \"second $?\"\n" + kLetGoOn);
    for (const char* word : {"second 78", "first 0"})
        EXPECT(strstr(ran.out.c_str(), word), "no '%s' in '%s' '%s'", word, ran.out.c_str(), ran.err.c_str());
    EXPECT(steps_of("lock_ranks", "train").size() == 10, "%zu rows", steps_of("lock_ranks", "train").size());
}
