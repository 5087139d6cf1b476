// Disturbances from outside: signals at any moment, full disks, a reader of stdout that leaves.
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

static const char* const kStopping = "stopping after this step";

// 4 million tokens: an evaluation, or a step, of a minute
static string large_shard() {
    static const string path = write_shard(folder("large.bin"), std::vector<int32_t>(4 << 20, 7));
    return path;
}

// Starts a run, waits until metrics.jsonl has the word, sends signals, and gives it 15 s to end.
static Ran interrupted(const string& name, const json& changes, const string& word, const string& signals) {
    const string metrics = folder(name) + "/metrics.jsonl";
    return run("./train_gpt " + tiny_program_config(name, changes) + " & pid=$!\n"
               "i=0; until grep -q '\"" + word + "\"' " + metrics + " 2>/dev/null || [ $i -ge 1500 ]; do\n"
               "  sleep 0.02; i=$((i+1)); done; sleep 0.3\n" + signals + "\n"
               "i=0; while kill -0 $pid 2>/dev/null && [ $i -lt 750 ]; do sleep 0.02; i=$((i+1)); done\n"
               "kill -9 $pid 2>/dev/null; wait $pid; echo \"exit code $?\" >&2");
}

TEST(an_evaluation_ends_where_it_is) {
    const Ran ran = interrupted("evaluation",
                                {{"data", {{"val", large_shard()}}}, {"eval", {{"batches", 0}}}}, "start",
                                "kill -INT $pid");
    EXPECT(has(ran.err, "exit code 75") && count_of(ran.err, kStopping) == 1, "'%s'", ran.err.c_str());
    EXPECT(rows_of("evaluation", "val").empty() && rows_of("evaluation", "train").empty(),
           "half an evaluation is logged");
    EXPECT(there(folder("evaluation") + "/step_0/rank_00000.safetensors"), "nothing is saved");
    EXPECT(has(ran.out, "the same command goes on from there"), "no way on in '%s'", ran.out.c_str());
}

TEST(a_sample_ends_where_it_is) {
    std::ofstream(folder("text.txt")) << string(3000, 'a') + " few words to take bytes from\n";
    const Ran made = run("./tokenize train --vocab=300 --out=" + folder("tokenizer.json") + " " +
                         folder("text.txt"));
    EXPECT(made.code == 0, "'%s'", made.err.c_str());
    const Ran ran = interrupted("sample",
                                {{"data", {{"tokenizer", folder("tokenizer.json")}}},
                                 {"eval", {{"every", 0}}},
                                 {"sample", {{"every", 1}, {"tokens", 1 << 24}, {"temperature", 0}}}},
                                "train", "kill -TERM $pid");
    EXPECT(has(ran.err, "exit code 75"), "'%s'", ran.err.c_str());
    EXPECT(rows_of("sample", "sample").empty() && (steps_of("sample", "train") == std::vector{1}),
           "half a sample is logged");
    EXPECT(there(folder("sample") + "/step_1/rank_00000.safetensors"), "nothing is saved");
}

// A step of a minute: the second signal does not wait for it.
static const json kLongStep = {{"train", {{"batch_tokens", (4 << 20) - 128}}}, {"eval", {{"every", 0}}}};

TEST(a_second_signal_ends_at_once) {
    json changes = kLongStep;
    changes["data"]["train"] = large_shard();
    const Ran ran =
        interrupted("second", changes, "start", "kill -TERM $pid; sleep 0.8; kill -INT $pid");
    EXPECT(has(ran.err, "exit code 75") && count_of(ran.err, kStopping) == 1, "'%s'", ran.err.c_str());
    for (const auto& e : fs::directory_iterator(folder("second")))
        EXPECT(!e.path().filename().string().starts_with("step_"), "%s", e.path().c_str());
}

// Supervisor and program, which starts itself anew, under pgrep(1) and ps(1).
TEST(the_process_has_its_name) {
    const Ran ran = interrupted("named", {{"train", {{"steps", 1000000}}}}, "train",
                                "for p in $pid $(cat /proc/$pid/task/$pid/children); do cat /proc/$p/comm; "
                                "tr '\\0' ' ' </proc/$p/cmdline; echo; done >&2; kill -TERM $pid");
    EXPECT(count_of(ran.err, "train_gpt\n./train_gpt /") == 2, "'%s'", ran.err.c_str());
}

// Signals as timeout(1) sends, of two kinds: both arrive.
TEST(two_signals_at_once_are_one) {
    const Ran ran = interrupted("timeout", {{"train", {{"steps", 1000000}}}}, "train",
                                "kill -TERM $pid; kill -INT $pid");
    EXPECT(has(ran.err, "exit code 75"), "'%s'", ran.err.c_str());
    const auto steps = steps_of("timeout", "train");
    const string saved = folder("timeout") + "/step_" + std::to_string(steps.empty() ? 0 : steps.back());
    EXPECT(there(saved + "/rank_00000.safetensors"), "no %s", saved.c_str());
}

// Where PENDING_SIGNAL is set this binary starts the program of its arguments, with that signal pending: sent
// before the first instruction of main.
[[gnu::constructor]] static void start_signalled(int, char** argv) {
    const char* signal = getenv("PENDING_SIGNAL");
    if (!signal) return;
    ::signal(SIGHUP, SIG_DFL);         // nohup has it ignored
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, nullptr);
    kill(getpid(), atoi(signal));
    unsetenv("PENDING_SIGNAL");
    execv(argv[1], argv + 1);
    _exit(127);
}

// The exit code of a run whose ranks were all signalled at their start.
static int signalled(const string& name, int signal, bool mpi) {
    const string mpirun = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2 ";
    const Ran ran = run(fmt::format("export PENDING_SIGNAL={}; {}", signal, mpi ? mpirun.c_str() : "") +
                        fs::read_symlink("/proc/self/exe").string() + " ./train_gpt " +
                        tiny_program_config(name));
    const bool saves = signal == SIGUSR1 || signal == SIGUSR2;
    EXPECT(!saves || there(folder(name) + "/step_0/rank_00000.safetensors"), "%s: '%s'", name.c_str(),
           ran.err.c_str());
    EXPECT(rows_of(name, "train").size() == (signal == SIGUSR1 ? 10 : 0), "%s: %zu steps", name.c_str(),
           rows_of(name, "train").size());
    return ran.code;
}

TEST(signals_before_main) {
    const bool mpi = run("command -v mpirun").code == 0 && has(run("./train_gpt --version").out, "MPI");
    for (const bool by_mpi : {false, true}) {
        const std::pair<int, int> codes[] = {
            {SIGUSR1, 0}, {SIGUSR2, 75}, {SIGTERM, 75}, {SIGINT, 75}, {SIGHUP, by_mpi ? 75 : 129}};
        for (const auto& [signal, code] : codes) {
            if (by_mpi && !mpi) continue;
            const int found = signalled(fmt::format("early{}_{}", signal, int(by_mpi)), signal, by_mpi);
            EXPECT(found == code, "signal %d%s: exit code %d", signal, by_mpi ? ", mpirun" : "", found);
        }
    }
}

TEST(stdout_that_is_closed) {
    const int steps = kAddressSanitizer ? 40 : 300;
    const string config = tiny_program_config("head", {{"train", {{"steps", steps}}}});
    const string every = " --checkpoint.every=" + std::to_string(steps);
    const Ran ran = run("{ ./train_gpt " + config + every + "; echo \"exit code $?\" >&2; } | "
                        "head -n 1");
    EXPECT(has(ran.err, "exit code 0"), "'%s'", ran.err.c_str());
    const string last = folder("head") + fmt::format("/step_{}/rank_00000.safetensors", steps);
    EXPECT(rows_of("head", "done").size() == 1 && there(last), "the run ended with its reader");
}

// ---------------------------------------------------------------------------------------------------------
// disks

static size_t incomplete(const string& run_dir) {
    size_t count = 0;
    for (const auto& e : fs::directory_iterator(run_dir)) count += has(e.path().string(), ".tmp-");
    return count;
}

// A limit on file sizes below the size of the weights: every save fails while writing. The run continues to
// the end, and the exit code tells.
TEST(saves_that_fail_do_not_end_the_run) {
    const string config = tiny_program_config("limit");
    const string every = " --checkpoint.every=4 --checkpoint.async=false";
    const Ran ran = run("ulimit -f 200; ./train_gpt " + config + every);
    EXPECT(ran.code == 78, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(rows_of("limit", "train").size() == 10 && rows_of("limit", "val").size() == 3, "%zu steps",
           rows_of("limit", "train").size());
    EXPECT(count_of(ran.err, "warning: the checkpoint of step") == 2, "'%s'", ran.err.c_str());
    for (const char* word : {"of step 4 is not saved", "of step 8 is not saved", "Training goes on",
                             "checkpoint.keep_last", "rank_00000.safetensors", "are free",
                             "error: the checkpoint of step 10 is not saved", "is lost"})
        EXPECT(has(ran.err, word), "no '%s' in '%s'", word, ran.err.c_str());
    EXPECT(incomplete(folder("limit")) == 0 && !has(ran.out, "saved  "), "'%s'", ran.out.c_str());
    const Ran some = run("ulimit -f 200; ./train_gpt " + tiny_program_config("limit2") +
                         " --train.steps=2");
    EXPECT(some.code == 0 && some.err.empty(), "code %d, '%s'", some.code, some.err.c_str());
}

// Every program says which limit of the shell is too low, and which is enough.
TEST(limits_of_the_shell_are_lines) {
    if (kAddressSanitizer || kThreadSanitizer) return skip("a sanitizer has limits of its own");
    const string config = tiny_program_config("limits"), ranks = " --parallel.ranks=2";
    EXPECT(train_gpt(config).code == 0, "a run");
    const string small = " --run.dir=" + folder("limits_small"), page = " --port=0";
    const std::tuple<const char*, string, int> cases[] = {
        {"ulimit -s 64", config + ranks, 78}, {"ulimit -s 64", config + " --plan", 78},
        {"ulimit -s 64", "--watch=" + folder("limits") + page, 78},
        {"ulimit -s 512", config + ranks + small, 0},
        {"ulimit -S -s 64", config + " --plan", 0}, {"ulimit -f 0", config + small + "_f", 78},
        {"ulimit -f 0", config + " --report", 78}};
    for (const auto& [limit, args, code] : cases) {
        // through a pipe, as the limit is also that of the test's own files
        const Ran ran = run(fmt::format("({}; timeout 20 ./train_gpt {} 2>&1 >/dev/null; echo $?) | cat",
                                        limit, args));
        EXPECT(ran.out.ends_with(fmt::format("{}\n", code)), "%s %s: '%s'", limit, args.c_str(),
               ran.out.c_str());
        EXPECT(code == 0 || (has(ran.out, string(limit).substr(0, 9)) && no_message(ran.out).empty()),
               "%s %s: '%s'", limit, args.c_str(), ran.out.c_str());
    }
}

// A disk with room for one checkpoint of 1.6 MB: the first is saved and stays, the others are not begun.
TEST(a_full_disk_keeps_what_is_there) {
    const string disk = folder("disk");
    fs::create_directories(disk);
    if (run("mount -t tmpfs -o size=2500k none " + disk).code != 0) {
        skip("mounting a small disk is not allowed here");
        return;
    }
    const Ran ran = train_gpt(tiny_program_config("disk/run", {{"run", {{"dir", disk + "/run"}}}}),
                              "--checkpoint.every=4 --checkpoint.keep_last=0 --checkpoint.async=false");
    EXPECT(ran.code == 78, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(rows_of("disk/run", "train").size() == 10, "%zu steps", rows_of("disk/run", "train").size());
    for (const char* word : {"of step 8 is not saved: no room", "It takes ", "are free", "step 10"})
        EXPECT(has(ran.err, word), "no '%s' in '%s'", word, ran.err.c_str());
    EXPECT(there(disk + "/run/step_4/rank_00000.safetensors") && incomplete(disk + "/run") == 0, "step_4");
    EXPECT(run("umount " + disk).code == 0, "%s stays", disk.c_str());
}
