// A rank of ./train_gpt dies or hangs, in every phase of a run: a single line names rank, cause and place,
// the exit code keeps the contract, the job ends in time, and no process is left. base/guard/progress_page.h
// plants the faults; test/base/guard/supervisor.cpp has more deaths, without the model.
#include <dirent.h>
#include <unistd.h>

#include <cstring>

#include "llmc/base/host/machine.h"
#include "llmc/base/progress.h"
#include "test/program.h"

using namespace test;
using std::string;

// A model of fp64 with text, that evaluates, samples and saves after every step.
static string config_of(const string& name, const json& changes = json::object()) {
    static const bool made = [] {
        std::ofstream(folder("text.txt")) << [] {
            string text;
            for (uint64_t i = 0; i < 12000; i++) text += "a page of text, read.\n"[philox(1, 2, i).x[0] % 22];
            return text;
        }();
        const string tokenizer = folder("tokenizer.json");
        run("./tokenize train --vocab=270 --out=" + tokenizer + " " + folder("text.txt"));
        run("./tokenize encode --tokenizer=" + tokenizer + " --out=" + folder("text") + " --val=0.1 " +
            folder("text.txt"));
        return true;
    }();
    (void)made;
    json all = {{"run", {{"precision", "fp64"}}},
               {"model", {{"heads", 2}, {"channels", 16}, {"vocab", 0}}},
               {"data", {{"train", folder("text_train_*.bin")}, {"val", folder("text_val_*.bin")},
                         {"tokenizer", folder("tokenizer.json")}}},
               {"train", {{"steps", 100}, {"micro_batch", 1}}},
               {"eval", {{"every", 1}, {"batches", 1}}},
               {"sample", {{"every", 1}, {"tokens", 4}, {"prompt", "a"}}},
               {"checkpoint", {{"every", 1}}}};
    all.merge_patch(changes);
    return tiny_program_config(name, all);
}

static int processes_with(const string& word) {
    int count = 0;
    DIR* proc = opendir("/proc");
    while (const dirent* e = readdir(proc)) {
        if (atoi(e->d_name) <= 0) continue;
        const string line = text_of(fmt::format("/proc/{}/cmdline", e->d_name));
        count += line.find("train_gpt") != string::npos && line.find(word) != string::npos;
    }
    closedir(proc);
    return count;
}

struct Where { const char *phase, *words; int step; };
static constexpr Where kPhases[] = {
    {"load", "loading", 0}, {"train", "training step 3", 3}, {"evaluate", "evaluating at step 2", 2},
    {"sample", "sampling at step 2", 2}, {"save", "saving at step 2", 2}, {"end", "ending after step 4", 4}};

struct Failure { const char *action, *what; int code; };
static constexpr Failure kKill = {"kill", "was killed by signal 9 (SIGKILL)", 75},
                       kThrow = {"throw", "was killed by signal 6 (SIGABRT)", 75},
                       kExit = {"exit", "ended with exit code 3", 75},
                       kStop = {"stop", "stopped by signal 19 (SIGSTOP)", 76},
                       kHang = {"hang", "hangs: no progress for ", 76};

static int count = 0;

static string command_of(int ranks, bool mpi, const string& config) {
    const string start = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np ";
    if (mpi) return start + std::to_string(ranks) + " ./train_gpt " + config;
    return "./train_gpt " + config + fmt::format(" --parallel.transport=threads --parallel.ranks={}", ranks);
}

// Any phase of the named thread: the thread with the fault may be a phase ahead.
static bool in_some_phase(const string& line) {
    for (const char* words : {"starting", "loading", "training step ", "evaluating at step ",
                              "sampling at step ", "saving at step ", "ending after step "})
        if (has(line, words)) return true;
    return false;
}

static void check_end(int ranks, bool mpi, const Where& where, const Failure& fault) {
    const string name = fmt::format("death{}", count++), config = config_of(name);
    const bool stops = fault.action == string("stop");
    const int rank = stops && !mpi ? 0 : ranks - 1;                 // every thread of the process stops
    string command = command_of(ranks, mpi, config) + " --run.hang_timeout=2 --parallel.tp=2";
    if (where.phase == string("end")) command += fmt::format(" --train.steps={}", where.step);
    const string stamp = folder(name + ".stamp");
    const Ran ran = run(fmt::format("export FAULT={}:{}:{}:{} FAULT_STAMP={}; {}", where.phase, where.step,
                                    fault.action, rank, stamp, command));
    for (int i = 0; i < 50 && processes_with(config) != 0; i++) usleep(20000);
    const double after = seconds_now() - atof(text_of(stamp).c_str());
    const string what = fmt::format("{} in phase {}, {} ranks by {}", fault.action, where.phase, ranks,
                                    mpi ? "mpirun" : "threads");
    EXPECT(ran.code == fault.code, "%s: exit code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
    // the threads of a process end together: the line names any thread and its phase
    const bool all = !mpi && fault.action != kThrow.action && fault.action != kHang.action;
    int obituaries = 0;
    std::istringstream lines(ran.err);
    for (string line; std::getline(lines, line);) {
        if (!has(line, "error: rank ") || !has(line, "step ")) continue;
        obituaries++;
        const string one = fmt::format("rank {} of {} on ", rank, ranks);
        const string whole = fmt::format("rank 0 to {} of {} on ", ranks - 1, ranks);
        const bool who = has(line, all ? whole : one) || (all && stops);
        EXPECT(who && has(line, fault.what) && has(line, " on " + host_name() + " (process ") &&
                   (all ? in_some_phase(line) : has(line, where.words)), "%s: '%s'", what.c_str(),
               line.c_str());
        if (fault.action == string("kill")) EXPECT(has(line, "; not by the kernel's out-of-memory killer"),
                                                   "%s: '%s'", what.c_str(), line.c_str());
    }
    EXPECT(obituaries == 1, "%s: %d obituaries in '%s'", what.c_str(), obituaries, ran.err.c_str());
    EXPECT(there(stamp) && after < 3 + (fault.code == 76 ? 2 : 0), "%s: %.2f s", what.c_str(), after);
    EXPECT(processes_with(config) == 0, "%s: processes are left", what.c_str());
}

TEST(a_rank_dies) {
    check_end(2, false, kPhases[1], kThrow);
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    check_end(4, true, kPhases[1], kKill);
    check_end(2, true, kPhases[3], kStop);
    check_end(2, true, kPhases[5], kStop);
}

TEST(a_rank_hangs) {
    check_end(2, false, kPhases[0], kHang);
    if (!no_mpi()) check_end(2, true, kPhases[4], kHang);
}

// The program starts itself anew at its start, with a setting for OpenMP. The supervisor is there by then: of
// kills in the first moments, few find a process without one.
TEST(the_supervisor_is_there_before_the_program_starts_anew) {
    const string config = config_of("anew");
    const string count = "tr '\\0' '\\n' </proc/$p/environ | grep -c GOMP_SPINCOUNT; ";
    const Ran ran = run("unset GOMP_SPINCOUNT OMP_WAIT_POLICY; FAULT=start:0:hang ./train_gpt " + config +
                        " & p=$!; for i in $(seq 200); do [ -e " + folder("anew") +
                        "/lock ] && break; sleep 0.02; done; " + count + "p=$(pgrep -P $p); " + count +
                        "kill -9 $p; wait");
    EXPECT(ran.out == "0\n1\n", "'%s', '%s'", ran.out.c_str(), ran.err.c_str());
    EXPECT(has(ran.err, "error: rank 0 on ") && has(ran.err, "killed by signal 9"), "%s", ran.err.c_str());
}

// A rank at a tenth of its speed: every heartbeat is slow, and a step takes longer than the timeout.
// at_least: milliseconds of the step.
static void check_slow(int ranks, bool mpi, int ms_of_beat, const char* axes = "--parallel.tp=2",
                       double at_least = 1200) {
    const string name = fmt::format("slow{}", count++);
    const json changes = {{"eval", {{"every", 0}}}, {"sample", {{"every", 0}}},
                          {"checkpoint", {{"every", 0}}}, {"train", {{"steps", 1}, {"micro_batch", 2}}}};
    const string config = config_of(name, changes);
    const Ran ran = run(fmt::format("export FAULT=train:1:slow{}:{}; ", ms_of_beat, ranks - 1) +
                        command_of(ranks, mpi, config) + " --run.hang_timeout=1" +
                        (ranks > 1 ? string(" ") + axes : ""));
    const auto rows = rows_of(name, "train");
    EXPECT(ran.code == 0 && !has(ran.err, "error") && rows.size() == 1, "%d ranks, %s: code %d, '%s'", ranks,
           mpi ? "mpirun" : "threads", ran.code, ran.err.c_str());
    for (const json& row : rows)
        EXPECT(row["ms"] > at_least, "%d ranks: a step of %.0f ms shows nothing", ranks, double(row["ms"]));
}

TEST(a_slow_rank_is_no_hang) {
    check_slow(1, false, 80);
    check_slow(2, false, 8);
    if (!no_mpi()) check_slow(2, true, 8);
}

// Data-parallel ranks meet once a step: the other rank's supervisor sees a single collective of 5 s.
TEST(nobody_who_waits_for_a_slow_rank_is_a_hang) {
    if (no_mpi()) return skip("no mpirun, or built without MPI");
    check_slow(2, true, 400, "--parallel.zero=1", 4500);
}

TEST(every_phase) {
    if (!getenv("TEST_FULL")) return skip("TEST_FULL=1 runs it");
    for (bool mpi : {false, true})
        for (int ranks : {2, 4})
            for (const Where& where : kPhases)
                for (const Failure* fault : {&kKill, &kThrow, &kExit, &kStop, &kHang})
                    if (!mpi || !no_mpi()) check_end(ranks, mpi, where, *fault);
}
