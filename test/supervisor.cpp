// Deaths and hangs: every way to end in every phase, on ranks that are processes of mpirun, threads, or one.
//
// This binary is also the program that is supervised (FAKE_DIR in the environment): its ranks go through the
// phases, and meet in a collective after each. The faults are those of base/progress_page.h.
#include <dirent.h>
#include <fcntl.h>
#include <pty.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "llmc/base/files.h"
#include "llmc/base/progress_page.h"
#include "llmc/base/launcher.h"
#include "llmc/base/progress.h"
#include "llmc/base/supervisor.h"
#include "llmc/train/signals.h"
#include "test/test.h"

using namespace test;
using std::string;

// ---------------------------------------------------------------------------------------------------------
// the program

struct Shared {                     // of all ranks, in a file
    std::atomic<int64_t> arrived[16];
    std::atomic<double> alive[16];  // seconds_now() when this rank last did something
};

static Shared* shared_of(const string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0, "cannot make %s", path.c_str());
    return static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

// Waits until all have come here as often.
static void meet(Shared& s, int rank, int world) {
    context.progress->collective = "all_gather tp";
    const int64_t mine = ++s.arrived[rank];
    for (int r = 0; r < world; r++) while (s.arrived[r] < mine) usleep(500);
    context.progress->collective = nullptr;
    beat();
}

static int rank_of_program(Shared& s, int rank, int world, int64_t steps) {
    context.rank = rank;
    const auto work = [&](Phase p, int64_t step) {
        s.alive[rank] = seconds_now();
        phase(p, step);
        usleep(2000);
        s.alive[rank] = seconds_now();
        meet(s, rank, world);
    };
    work(Phase::Start, 0);
    work(Phase::Load, 0);
    for (int64_t step = 0; step <= steps; step++) {
        for (Phase p : {Phase::Evaluate, Phase::Sample, Phase::Save}) work(p, step);
        if (take_signals().stop && world == 1) return kExitRestart;
        if (getenv("FAKE_FATAL") && step == 3) CHECK_INPUT(false, "this number is wrong");
        if (getenv("FAKE_EARLY") && step == 3 && rank == 1) exit(0);
        if (step < steps) work(Phase::Train, step + 1);
    }
    phase(Phase::End, steps);
    return 0;
}

static int program(const string& dir) {
    supervise();
    watch_for_hangs(atof(getenv("FAKE_TIMEOUT")));
    catch_signals();
    std::ofstream(dir + "/pid." + std::to_string(launcher().rank)) << getpid() << "\n";
    Shared& s = *shared_of(dir + "/shared");
    const int threads = atoi(getenv("FAKE_THREADS"));
    const int64_t steps = atoll(getenv("FAKE_STEPS"));
    if (threads == 0) {
        const int code = rank_of_program(s, launcher().rank, launcher().world, steps);
        ends_on_purpose();
        return code;
    }
    std::vector<std::jthread> ranks;
    for (int r = 0; r < threads; r++)
        ranks.emplace_back([&s, r, threads, steps] {
            join_progress(r, threads, r);
            rank_of_program(s, r, threads, steps);
        });
    ranks.clear();
    ends_on_purpose();
    return 0;
}

static const bool was_program = [] {
    const char* dir = getenv("FAKE_DIR");
    if (dir) exit(program(dir));
    return false;
}();

// ---------------------------------------------------------------------------------------------------------
// running it

static string folder(const string& name) { return temporary_directory() + "/" + name; }

static string program_name() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return string(path, size_t(n));
}

// Processes that were started with this folder in their environment.
static std::vector<int> processes_of(const string& dir) {
    std::vector<int> found;
    DIR* proc = opendir("/proc");
    while (const dirent* e = readdir(proc)) {
        const int pid = atoi(e->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        std::stringstream text;
        text << std::ifstream(strf("/proc/%d/environ", pid), std::ios::binary).rdbuf();
        const string environment = text.str();
        for (size_t at = 0; at < environment.size(); at += strlen(environment.c_str() + at) + 1)
            if (environment.c_str() + at == "FAKE_DIR=" + dir) { found.push_back(pid); break; }
    }
    closedir(proc);
    return found;
}

enum class Kind { Process, Mpirun, Threads };

struct Job {
    Kind kind = Kind::Process;
    int ranks = 1;
    string fault;                   // FAULT
    double timeout = 60;            // FAKE_TIMEOUT
    int64_t steps = 1000000;
    string more;                    // of the environment
    string meanwhile;               // shell commands beside it; $pid is what the user started
};

struct Ended {
    Ran ran;
    double after;                   // seconds since that rank was last alive
    std::vector<int> left;          // processes
};

static int count = 0;

static Ended run_job(const Job& job, int victim) {
    const string dir = folder("job" + std::to_string(count++));
    make_directories(dir);
    string command = strf("export FAKE_DIR=%s FAKE_TIMEOUT=%g FAKE_STEPS=%lld FAKE_THREADS=%d FAULT=%s GOMP_SPINCOUNT=1 %s\n"
                          "dir=%s\n", dir.c_str(), job.timeout, static_cast<long long>(job.steps),
                          job.kind == Kind::Threads ? job.ranks : 0, job.fault.c_str(), job.more.c_str(),
                          dir.c_str());
    if (job.kind == Kind::Mpirun)
        command += strf("mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np %d ", job.ranks);
    command += program_name() + " & pid=$!\n" + job.meanwhile + "\nwait $pid\n";
    Ended e{.ran = run(command), .after = 0, .left = {}};
    e.after = seconds_now() - shared_of(dir + "/shared")->alive[victim];
    e.left = processes_of(dir);
    return e;
}

// Shell: the children's pids become readable, and the phases have begun.
static const string kWhenRunning = "until [ -s $dir/pid.0 ]; do sleep 0.01; done; sleep 0.3\n";

static int lines_of(const string& text, const string& a, const string& b) {
    int found = 0;
    std::istringstream in(text);
    for (string line; std::getline(in, line);)
        found += line.find(a) != string::npos && line.find(b) != string::npos;
    return found;
}

static bool mpirun_is_there() {
    static const bool there = run("mpirun --version").code == 0;
    return there;
}

static void check_death(const Job& job, int victim, const string& what, const string& where, int code,
                        double seconds) {
    const Ended e = run_job(job, victim);
    const string name = strf("%s of rank %d of %d (%s)", job.fault.c_str(), victim, job.ranks,
                             job.kind == Kind::Mpirun ? "mpirun" : job.kind == Kind::Threads ? "threads" : "one");
    EXPECT(e.ran.code == code, "%s: exit code %d, expected %d; '%s'", name.c_str(), e.ran.code, code,
           e.ran.err.c_str());
    const string rank = strf("error: rank %d", victim);
    EXPECT(lines_of(e.ran.err, rank, what) == 1 && lines_of(e.ran.err, rank, where) == 1, "%s: no '%s' and '%s' in '%s'",
           name.c_str(), what.c_str(), where.c_str(), e.ran.err.c_str());
    EXPECT(lines_of(e.ran.err, "rank", "step") == 1, "%s: more than one line in '%s'", name.c_str(),
           e.ran.err.c_str());
    EXPECT(e.after < seconds, "%s: the job ends after %.2f s", name.c_str(), e.after);
    EXPECT(e.left.empty(), "%s: %zu processes are left, as %d", name.c_str(), e.left.size(),
           e.left.empty() ? 0 : e.left[0]);
}

struct Way { const char *action, *what; };
static constexpr Way kWays[] = {{"kill", "was killed by signal 9"}, {"throw", "was killed by signal 6"},
                                {"segv", "was killed by signal 11"}, {"exit", "ended with exit code 3"}};

struct Where { const char *phase, *words; int step; };
static constexpr Where kPhases[] = {{"start", "starting (step 0)", 0},   {"load", "loading (step 0)", 0},
                                    {"train", "training step 2", 2},     {"evaluate", "evaluating at step 2", 2},
                                    {"sample", "sampling at step 2", 2}, {"save", "saving at step 2", 2}};

// SIGKILL and exit() end all threads of a process: nobody can say whose fault it was.
static void check_way(Kind kind, int ranks, const Way& way, const Where& where) {
    const bool whole = kind == Kind::Threads && (way.action == string("kill") || way.action == string("exit"));
    const int rank = ranks - 1;
    const string fault = strf("%s:%d:%s:%d", where.phase, where.step, way.action, rank);
    check_death({.kind = kind, .ranks = ranks, .fault = fault, .more = "", .meanwhile = ""}, whole ? 0 : rank, way.what,
                where.words, kExitRestart, 3);
}

static void check_stop(Kind kind, int ranks, const Where& where) {
    const int rank = kind == Kind::Threads ? 0 : ranks - 1;     // all threads stop, and the first is named
    const string fault = strf("%s:%d:stop:%d", where.phase, where.step, rank);
    check_death({.kind = kind, .ranks = ranks, .fault = fault, .timeout = 1, .more = "", .meanwhile = ""}, rank,
                "stopped by signal 19", where.words, kExitHang, 1 + 3);
}

TEST(one_rank_dies) {
    for (const Way& way : kWays) check_way(Kind::Process, 1, way, kPhases[2]);
    check_stop(Kind::Process, 1, kPhases[3]);
}

TEST(a_thread_dies) {
    for (const Way& way : kWays) check_way(Kind::Threads, 4, way, kPhases[4]);
    check_stop(Kind::Threads, 2, kPhases[2]);
}

TEST(a_process_of_mpirun_dies) {
    if (!mpirun_is_there()) return skip("no mpirun");
    check_way(Kind::Mpirun, 4, kWays[0], kPhases[2]);
    check_way(Kind::Mpirun, 2, kWays[3], kPhases[5]);
    check_stop(Kind::Mpirun, 4, kPhases[2]);
}

TEST(a_thread_that_hangs) {
    check_death({.kind = Kind::Threads, .ranks = 4, .fault = "train:3:hang:2", .timeout = 1, .more = "", .meanwhile = ""},
                2, "hangs: no progress for 1.", "training step 3", kExitHang, 1 + 3);
}

TEST(a_process_that_hangs_is_named_by_all_who_wait) {
    if (!mpirun_is_there()) return skip("no mpirun");
    check_death({.kind = Kind::Mpirun, .ranks = 4, .fault = "evaluate:1:hang:2", .timeout = 1, .more = "", .meanwhile = ""},
                2, "hangs: no progress for 1.", "evaluating at step 1", kExitHang, 1 + 3);
}

TEST(a_slow_rank_is_no_hang) {
    for (Kind kind : {Kind::Threads, Kind::Mpirun}) {
        if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
        const Ended e = run_job({.kind = kind, .ranks = 2, .fault = "train:1:200:1", .timeout = 1, .steps = 15,
                                 .more = "", .meanwhile = ""}, 0);
        EXPECT(e.ran.code == 0 && e.ran.err.empty() && e.left.empty(), "exit code %d, '%s'", e.ran.code,
               e.ran.err.c_str());
    }
}

TEST(an_error_of_all_ranks_is_printed_once) {
    for (Kind kind : {Kind::Threads, Kind::Mpirun}) {
        if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
        const Ended e = run_job({.kind = kind, .ranks = 4, .fault = "", .more = "FAKE_FATAL=1", .meanwhile = ""}, 0);
        EXPECT(e.ran.code == kExitConfig && lines_of(e.ran.err, "error: this number is wrong", "") == 1 &&
                   lines_of(e.ran.err, "rank", "save, step 3") == 1 && lines_of(e.ran.err, "killed", "") == 0,
               "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
        EXPECT(e.after < 3 && e.left.empty(), "%.1f s, %zu left", e.after, e.left.size());
    }
}

TEST(success_in_the_middle_is_a_death) {
    if (!mpirun_is_there()) return skip("no mpirun");
    const Ended e = run_job({.kind = Kind::Mpirun, .ranks = 2, .fault = "", .more = "FAKE_EARLY=1", .meanwhile = ""}, 1);
    EXPECT(e.ran.code == kExitRestart && lines_of(e.ran.err, "rank 1 of 2", "ended with exit code 0") == 1,
           "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// signals

static void expect_silence(const Ended& e, std::initializer_list<int> codes, double seconds) {
    EXPECT(std::find(codes.begin(), codes.end(), e.ran.code) != codes.end(), "exit code %d, '%s'", e.ran.code,
           e.ran.err.c_str());
    EXPECT(lines_of(e.ran.err, "rank", "step") == 0, "'%s'", e.ran.err.c_str());
    EXPECT(e.after < seconds && e.left.empty(), "%.1f s, %zu left", e.after, e.left.size());
}

// The rest of a job's processes may take a moment to follow.
static const string kAMoment = "\nwait $pid; code=$?; sleep 0.5; exit $code";

TEST(who_kills_the_supervisor_kills_its_child) {
    expect_silence(run_job({.fault = "", .more = "", .meanwhile = kWhenRunning + "kill -9 $pid" + kAMoment}, 0), {137}, 1.5);
    if (!mpirun_is_there()) return;
    const string second = "kill -9 $(cut -d' ' -f4 /proc/$(cat $dir/pid.1)/stat)";
    expect_silence(run_job({.kind = Kind::Mpirun, .ranks = 4, .fault = "", .more = "",
                            .meanwhile = kWhenRunning + second + kAMoment}, 1), {75, 137}, 3);
}

TEST(who_ends_mpirun_ends_all) {
    if (!mpirun_is_there()) return skip("no mpirun");
    for (const char* signal : {"TERM", "INT", "KILL"})
        expect_silence(run_job({.kind = Kind::Mpirun, .ranks = 3, .fault = "", .more = "",
                                .meanwhile = kWhenRunning + "kill -" + signal + " $pid" + kAMoment}, 1),
                       {1, 75, 130, 137, 143}, 4);
}

TEST(signals_reach_the_child) {
    for (const char* signal : {"TERM", "INT", "USR2"})
        expect_silence(run_job({.fault = "", .more = "", .meanwhile = kWhenRunning + "kill -" + signal + " $pid"}, 0),
                       {kExitRestart}, 1.5);
    // not caught by the program: as if there were no supervisor
    expect_silence(run_job({.fault = "", .more = "", .meanwhile = kWhenRunning + "kill -HUP $pid"}, 0), {129}, 1.5);
    // stopped and continued as one
    const string state = "sed 's/.*) //' /proc/$(cat $dir/pid.0)/stat | cut -c1 >&2\n";
    const Ended e = run_job({.fault = "", .more = "", .meanwhile = kWhenRunning + "kill -TSTP $pid; sleep 0.3\n" + state +
                             "kill -CONT $pid; sleep 0.3\n" + state + "kill -TERM $pid"}, 0);
    EXPECT(e.ran.code == kExitRestart && e.ran.err.starts_with("T\n") && !e.ran.err.starts_with("T\nT"),
           "exit code %d, '%s'", e.ran.code, e.ran.err.c_str());
}

// ^C reaches supervisor and child, and is one request.
TEST(control_c_in_a_terminal) {
    const string dir = folder("terminal");
    make_directories(dir);
    int terminal = -1;
    const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid == 0) {
        for (const auto& [name, value] : {std::pair{"FAKE_DIR", dir.c_str()}, {"FAKE_TIMEOUT", "60"},
                                          {"FAKE_STEPS", "1000000"}, {"FAKE_THREADS", "0"}}) setenv(name, value, 1);
        execl(program_name().c_str(), "supervisor", nullptr);
        _exit(127);
    }
    for (int i = 0; i < 500 && !file_exists(dir + "/pid.0"); i++) usleep(10000);
    usleep(300000);
    EXPECT(write(terminal, "\x03", 1) == 1, "no terminal");
    string shown;
    char text[512];
    for (ssize_t n; (n = read(terminal, text, sizeof text)) > 0;) shown.append(text, size_t(n));
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == kExitRestart, "status %d, '%s'", status, shown.c_str());
    EXPECT(lines_of(shown, "stopping after this step", "") == 1, "'%s'", shown.c_str());
}

// `make test-full` has them
TEST(every_death_in_every_phase) {
    if (!getenv("TEST_FULL")) return skip("TEST_FULL=1 runs it");
    for (Kind kind : {Kind::Threads, Kind::Mpirun})
        for (int ranks : {2, 4})
            for (const Where& where : kPhases) {
                if (kind == Kind::Mpirun && !mpirun_is_there()) continue;
                for (const Way& way : kWays) check_way(kind, ranks, way, where);
                check_stop(kind, ranks, where);
            }
}
