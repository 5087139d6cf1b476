// ./train_gpt on several ranks, of which one dies or hangs, in every phase of a run: one line says which, why
// and where, the exit code is that of the contract, the job ends in time, and no process is left. Faults are
// those of base/progress_page.h; test/supervisor.cpp has more ways to end, without the model.
#include <dirent.h>
#include <unistd.h>

#include <cstring>

#include "llmc/base/progress.h"
#include "test/program.h"

using namespace test;
using std::string;

static bool has(const string& text, const string& word) { return text.find(word) != string::npos; }

static bool no_mpi() {
    static const bool missing = run("command -v mpirun").code != 0 ||
                                !has(run("./train_gpt --version").out, "MPI");
    return missing;
}

// A model of fp64 with text, that evaluates, samples and saves after every step.
static string config_of(const string& name) {
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
    return tiny_program_config(
        name, {{"run", {{"precision", "fp64"}}},
               {"model", {{"heads", 2}, {"channels", 16}, {"vocab", 0}}},
               {"data", {{"train", folder("text_train_*.bin")}, {"val", folder("text_val_*.bin")},
                         {"tokenizer", folder("tokenizer.json")}}},
               {"train", {{"steps", 100}, {"micro_batch", 1}}},
               {"eval", {{"every", 1}, {"batches", 1}}},
               {"sample", {{"every", 1}, {"tokens", 4}, {"prompt", "a"}}},
               {"checkpoint", {{"every", 1}}}});
}

static int processes_with(const string& word) {
    int count = 0;
    DIR* proc = opendir("/proc");
    while (const dirent* e = readdir(proc)) {
        if (atoi(e->d_name) <= 0) continue;
        const string line = text_of(strf("/proc/%s/cmdline", e->d_name));
        count += line.find("train_gpt") != string::npos && line.find(word) != string::npos;
    }
    closedir(proc);
    return count;
}

struct Where { const char *phase, *words; int step; };
static constexpr Where kPhases[] = {
    {"load", "loading", 0}, {"train", "training step 3", 3}, {"evaluate", "evaluating at step 2", 2},
    {"sample", "sampling at step 2", 2}, {"save", "saving at step 2", 2}};

struct Failure { const char *action, *what; int code; };
static constexpr Failure kKill = {"kill", "was killed by signal 9 (SIGKILL)", 75},
                       kThrow = {"throw", "was killed by signal 6 (SIGABRT)", 75},
                       kExit = {"exit", "ended with exit code 3", 75},
                       kStop = {"stop", "stopped by signal 19 (SIGSTOP)", 76};

static int count = 0;

static void check_end(int ranks, bool mpi, const Where& where, const Failure& fault) {
    const string name = strf("death%d", count++), config = config_of(name);
    const int rank = fault.code == 76 && !mpi ? 0 : ranks - 1;      // all threads of a process stop
    string command = "./train_gpt " + config + " --run.hang_timeout=2 --parallel.tp=2";
    if (mpi) {
        const string start = "mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np ";
        command = start + std::to_string(ranks) + " " + command;
    } else {
        command += " --parallel.transport=threads --parallel.ranks=" + std::to_string(ranks);
    }
    const string stamp = folder(name + ".stamp");
    const Ran ran = run(strf("export FAULT=%s:%d:%s:%d FAULT_STAMP=%s; %s", where.phase, where.step,
                             fault.action, rank, stamp.c_str(), command.c_str()));
    for (int i = 0; i < 50 && processes_with(config) != 0; i++) usleep(20000);
    const double after = seconds_now() - atof(text_of(stamp).c_str());
    const string what = strf("%s in phase %s, %d ranks by %s", fault.action, where.phase, ranks,
                             mpi ? "mpirun" : "threads");
    EXPECT(ran.code == fault.code, "%s: exit code %d, '%s'", what.c_str(), ran.code, ran.err.c_str());
    int obituaries = 0;
    std::istringstream lines(ran.err);
    for (string line; std::getline(lines, line);) {
        if (!has(line, "error: rank ") || !has(line, "step ")) continue;
        obituaries++;
        const bool whole = !mpi && (fault.action == string("kill") || fault.action == string("exit"));
        const string one = strf("rank %d of %d", rank, ranks);
        const string who = whole ? strf("rank 0 to %d of %d", ranks - 1, ranks) : one;
        EXPECT(has(line, who) && has(line, fault.what) && has(line, where.words), "%s: '%s'", what.c_str(),
               line.c_str());
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
}

TEST(every_phase) {
    if (!getenv("TEST_FULL")) return skip("TEST_FULL=1 runs it");
    for (bool mpi : {false, true})
        for (int ranks : {2, 4})
            for (const Where& where : kPhases)
                for (const Failure* fault : {&kKill, &kThrow, &kExit, &kStop})
                    if (!mpi || !no_mpi()) check_end(ranks, mpi, where, *fault);
}
