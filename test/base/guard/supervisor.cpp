// Deaths and hangs: every kind of death in every phase; ranks are processes of mpirun, threads, or one rank.
#include "llmc/base/host/machine.h"
#include "test/fake_ranks.h"

using namespace test;
using std::string;

static const bool was_program = run_where_asked(program);

// "error: rank 2 of 4 on node7 (process "
static string begin_of(const string& who) { return "error: " + who + " on " + host_name() + " (process "; }

static void check_death(const Job& job, int victim, const string& what, const string& where, int code,
                        double seconds) {
    const Ended e = run_job(job);
    static constexpr const char* kKinds[] = {"process", "mpirun", "threads"};
    const string name = fmt::format("{} of {} ranks ({})", job.fault, job.ranks, kKinds[int(job.kind)]);
    EXPECT(e.ran.code == code, "%s: exit code %d, expected %d; '%s'", name.c_str(), e.ran.code, code,
           e.ran.err.c_str());
    const string rank = begin_of(job.ranks == 1 ? "rank 0" : victim < 0 ? fmt::format("rank 0 to {} of {}",
        job.ranks - 1, job.ranks) : fmt::format("rank {} of {}", victim, job.ranks));
    EXPECT(lines_of(e.ran.err, rank, what) == 1 && lines_of(e.ran.err, rank, where) == 1,
           "%s: no '%s' and '%s' in '%s'", name.c_str(), what.c_str(), where.c_str(), e.ran.err.c_str());
    EXPECT(lines_of(e.ran.err, "rank", "step") == 1, "%s: more than one line in '%s'", name.c_str(),
           e.ran.err.c_str());
    EXPECT(e.after < seconds, "%s: the job ends after %.2f s", name.c_str(), e.after);
    EXPECT(e.left.empty(), "%s: %zu processes are left, as %d", name.c_str(), e.left.size(),
           e.left.empty() ? 0 : e.left[0]);
}

struct Death { const char *action, *what; };
static constexpr Death kDeaths[] = {{"kill", "was killed by signal 9"}, {"throw", "was killed by signal 6"},
                                {"segv", "was killed by signal 11"}, {"exit", "ended with exit code 3"}};

struct Where { const char *phase, *words; int step; };
static constexpr Where kPhases[] = {
    {"start", "starting (step 0)", 0}, {"load", "loading (step 0)", 0},
    {"train", "training step 2", 2}, {"evaluate", "evaluating at step 2", 2},
    {"sample", "sampling at step 2", 2}, {"save", "saving at step 2", 2}, {"end", "ending after step 3", 3}};

static int64_t steps_of(const Where& where) { return where.phase == string("end") ? where.step : 1000000; }

// AddressSanitizer reports segmentation faults itself, and exits.
static bool skips(const Death& death) { return kAddressSanitizer && death.action == string("segv"); }

// SIGKILL and exit() end every thread of a process: the cause is unknown.
static void check_death(Kind kind, int ranks, const Death& death, const Where& where) {
    if (skips(death)) return;
    const string action = death.action;
    const bool whole = kind == Kind::Threads && (action == "kill" || action == "exit");
    const int rank = ranks - 1;
    const string fault = fmt::format("{}:{}:{}:{}", where.phase, where.step, death.action, rank);
    const Job job = {.kind = kind, .ranks = ranks, .fault = fault, .steps = steps_of(where)};
    check_death(job, whole ? -1 : rank, death.what, where.words, kExitRestart, 3);
}

static void check_stop(Kind kind, int ranks, const Where& where) {
    const int rank = kind == Kind::Threads ? 0 : ranks - 1;     // every thread stops; rank 0 is named
    const string fault = fmt::format("{}:{}:stop:{}", where.phase, where.step, rank);
    const Job job = {.kind = kind, .ranks = ranks, .fault = fault, .timeout = 2, .steps = steps_of(where)};
    check_death(job, rank, "stopped by signal 19", where.words, kExitHang, 2 + 3);
}

TEST(one_rank_dies) {
    for (const Death& death : kDeaths) check_death(Kind::Process, 1, death, kPhases[2]);
    check_stop(Kind::Process, 1, kPhases[3]);
}

TEST(a_thread_dies) {
    for (const Death& death : kDeaths) check_death(Kind::Threads, 4, death, kPhases[4]);
    check_stop(Kind::Threads, 2, kPhases[2]);
}

TEST(a_process_of_mpirun_dies) {
    if (!mpirun_is_there()) return skip("no mpirun");
    check_death(Kind::Mpirun, 4, kDeaths[0], kPhases[2]);
    check_death(Kind::Mpirun, 2, kDeaths[3], kPhases[5]);
    check_stop(Kind::Mpirun, 4, kPhases[2]);
    check_stop(Kind::Mpirun, 2, kPhases[6]);
}

TEST(a_thread_that_hangs) {
    check_death({.kind = Kind::Threads, .ranks = 4, .fault = "train:3:hang:2", .timeout = 1},
                2, "hangs: no progress for 1.", "training step 3", kExitHang, 1 + 3);
}

TEST(a_process_that_hangs_is_named_by_all_who_wait) {
    if (!mpirun_is_there()) return skip("no mpirun");
    check_death({.kind = Kind::Mpirun, .ranks = 4, .fault = "evaluate:1:hang:2", .timeout = 1},
                2, "hangs: no progress for 1.", "evaluating at step 1", kExitHang, 1 + 3);
}

TEST(a_slow_rank_is_no_hang) {
    for (Kind kind : {Kind::Threads, Kind::Mpirun}) {
        if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
        const Ended e =
            run_job({.kind = kind, .ranks = 2, .fault = "train:1:200:1", .timeout = 1, .steps = 6});
        EXPECT(e.ran.code == 0 && e.ran.err.empty() && e.left.empty(), "exit code %d, '%s'", e.ran.code,
               e.ran.err.c_str());
    }
}

TEST(an_error_of_all_ranks_is_printed_once) {
    for (Kind kind : {Kind::Threads, Kind::Mpirun}) {
        if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
        const Ended e = run_job({.kind = kind, .ranks = 4, .more = "FAKE_FATAL=1"});
        EXPECT(e.ran.code == kExitConfig && lines_of(e.ran.err, "error: this number is wrong", "") == 1 &&
                   lines_of(e.ran.err, "rank", "save, step 3") == 1 && lines_of(e.ran.err, "killed", "") == 0,
               "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
        EXPECT(e.after < 3 && e.left.empty(), "%.1f s, %zu left", e.after, e.left.size());
    }
}

TEST(success_in_the_middle_is_a_death) {
    if (!mpirun_is_there()) return skip("no mpirun");
    const Ended e = run_job({.kind = Kind::Mpirun, .ranks = 2, .more = "FAKE_EARLY=1"});
    EXPECT(e.ran.code == kExitRestart && lines_of(e.ran.err, "rank 1 of 2", "ended with exit code 0") == 1,
           "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
}

// A kill by another, while the kernel's counter of out-of-memory kills stands still, or goes up.
TEST(the_likely_cause_of_a_kill) {
    for (const bool out_of_memory : {false, true}) {
        const string vmstat = folder(fmt::format("vmstat{}", int(out_of_memory)));
        std::ofstream(vmstat) << "pgfault 12\noom_kill 7\nswap_ra 5\n";
        const string count = fmt::format("sed -i s/7/{}/ {}\n", 7 + out_of_memory, vmstat);
        const Ended e = run_job({.more = "FAKE_VMSTAT=" + vmstat,
                                 .meanwhile = kWhenRunning + count + "kill -9 $(cat $dir/pid.0)"});
        const char* const cause = out_of_memory ? "; likely by the kernel's out-of-memory killer"
                                                : "; not by the kernel's out-of-memory killer";
        EXPECT(e.ran.code == kExitRestart && lines_of(e.ran.err, begin_of("rank 0"), cause) == 1,
               "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
    }
}

// `make test-full` has them
TEST(every_death_in_every_phase) {
    if (!getenv("TEST_FULL")) return skip("TEST_FULL=1 runs it");
    for (Kind kind : {Kind::Threads, Kind::Mpirun})
        for (int ranks : {2, 4})
            for (const Where& where : kPhases) {
                if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
                for (const Death& death : kDeaths) check_death(kind, ranks, death, where);
                check_stop(kind, ranks, where);
            }
}
