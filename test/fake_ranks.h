// Programs under supervision and their ends; ranks are processes of mpirun, threads, or one rank.
//
// A test binary is also its own program, with FAKE_DIR in the environment: program() runs through the phases,
// and its ranks meet in a collective after each. base/guard/progress_page.h has the faults.
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "llmc/base/disk/files.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/signals.h"
#include "llmc/base/guard/supervisor.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/progress.h"
#include "test/test.h"

namespace test {

using std::string;

// ---------------------------------------------------------------------------------------------------------
// the program

struct Shared {                     // of all ranks, in a file
    std::atomic<int64_t> arrived[16];
    std::atomic<int64_t> entered[16];   // phases
    std::atomic<double> alive[16];  // seconds_now() when this rank last did something
};

inline Shared* shared_of(const string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0, "cannot make {}", path);
    return static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
}

// Waits until all have come here as often.
inline void meet(Shared& s, int rank, int world) {
    const Waiting named("all_gather tp");
    const int64_t mine = ++s.arrived[rank];
    for (int r = 0; r < world; r++) while (s.arrived[r] < mine) usleep(500);
}

// The rank that FAULT names, as in "end:3:kill:3", enters a phase last: all are there when its process ends.
inline void enter(Shared& s, int rank, int world, Phase p, int64_t step) {
    const char* fault = getenv("FAULT");
    if (fault && string(fault).ends_with(fmt::format(":{}", rank)))
        for (int r = 0; r < world; r++) while (r != rank && s.entered[r] <= s.entered[rank]) usleep(500);
    phase(p, step);
    s.entered[rank]++;
}

inline int rank_of_program(Shared& s, int rank, int world, int64_t steps) {
    context.rank = rank;
    const auto work = [&](Phase p, int64_t step) {
        s.alive[rank] = seconds_now();
        enter(s, rank, world, p, step);
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
    work(Phase::End, steps);
    wait_for_the_end();
    return 0;
}

inline int program(const string& dir) {
    const char* vmstat = getenv("FAKE_VMSTAT");
    vmstat ? supervise(vmstat) : supervise();
    set_hang_timeout(atof(getenv("FAKE_TIMEOUT")));
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

// Before any test: this process may be the program.
inline bool run_where_asked(int (*program)(const string& dir)) {
    const char* dir = getenv("FAKE_DIR");
    if (dir) exit(program(dir));
    return false;
}

// ---------------------------------------------------------------------------------------------------------
// running it

inline string program_name() {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return string(path, size_t(n));
}

// Processes that were started with this folder in their environment.
inline std::vector<int> processes_of(const string& dir) {
    std::vector<int> found;
    DIR* proc = opendir("/proc");
    while (const dirent* e = readdir(proc)) {
        const int pid = atoi(e->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        std::stringstream text;
        text << std::ifstream(fmt::format("/proc/{}/environ", pid), std::ios::binary).rdbuf();
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
    string fault = "";              // FAULT
    double timeout = 60;            // FAKE_TIMEOUT
    int64_t steps = 1000000;
    string more = "";               // of the environment
    string meanwhile = "";          // shell commands beside it; $pid is what the user started
};

struct Ended {
    Ran ran;
    double after;                   // seconds since a rank last did something
    std::vector<int> left;          // processes
};

inline std::atomic<int> count = 0;

inline Ended run_job(const Job& job) {
    const string dir = folder("job" + std::to_string(count++));
    make_directories(dir);
    const int threads = job.kind == Kind::Threads ? job.ranks : 0;
    string command = fmt::format("dir={}; export FAKE_DIR=$dir FAKE_TIMEOUT={:g} FAKE_STEPS={} "
                                 "FAKE_THREADS={} FAULT={} {}\n", dir, job.timeout, job.steps,
                                 threads, job.fault, job.more);
    if (job.kind == Kind::Mpirun)
        command += fmt::format("mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np {} ",
                               job.ranks);
    command += program_name() + " & pid=$!\n" + job.meanwhile + "\nwait $pid\n";
    Ended e{.ran = run(command), .after = 0, .left = {}};
    // a child whose supervisor mpirun killed dies a moment after it
    for (int i = 0; i < 50 && !(e.left = processes_of(dir)).empty(); i++) usleep(20000);
    double last = 0;
    for (const auto& alive : shared_of(dir + "/shared")->alive) last = std::max(last, alive.load());
    e.after = seconds_now() - last;
    return e;
}

// Shell: the children's pids become readable, and the phases have begun.
inline const string kWhenRunning = "until [ -s $dir/pid.0 ]; do sleep 0.01; done; sleep 0.3\n";

inline int lines_of(const string& text, const string& a, const string& b) {
    int found = 0;
    std::istringstream in(text);
    for (string line; std::getline(in, line);)
        found += line.find(a) != string::npos && line.find(b) != string::npos;
    return found;
}

inline bool mpirun_is_there() {
    static const bool there = run("mpirun --version").code == 0;
    return there;
}

}  // namespace test
