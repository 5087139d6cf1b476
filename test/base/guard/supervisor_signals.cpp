// Signals to a supervisor, to its child, and to both.
#include <pty.h>
#include <sys/wait.h>

#include <algorithm>

#include "test/fake_ranks.h"

using namespace test;
using std::string;

static const bool was_program = run_where_asked(program);

// No obituary; `asked` says whether the program was asked to stop.
static void expect_silence(const Ended& e, std::initializer_list<int> codes, double seconds, int asked = 0) {
    EXPECT(std::find(codes.begin(), codes.end(), e.ran.code) != codes.end(), "exit code %d, '%s'", e.ran.code,
           e.ran.err.c_str());
    EXPECT(lines_of(e.ran.err, "rank", "step") == 0, "'%s'", e.ran.err.c_str());
    EXPECT(lines_of(e.ran.err, "stopping after this step", "") <= asked, "'%s'", e.ran.err.c_str());
    EXPECT(e.after < seconds && e.left.empty(), "%.1f s, %zu left", e.after, e.left.size());
}

// The rest of a job's processes may take a moment to follow.
static const string kAMoment = "\nwait $pid; code=$?; sleep 0.5; exit $code";

TEST(who_kills_the_supervisor_kills_its_child) {
    expect_silence(run_job({.meanwhile = kWhenRunning + "kill -9 $pid" + kAMoment}), {137}, 1.5);
    if (!mpirun_is_there()) return;
    const string second = "kill -9 $(cut -d' ' -f4 /proc/$(cat $dir/pid.1)/stat)";
    expect_silence(run_job({.kind = Kind::Mpirun, .ranks = 4,
                            .meanwhile = kWhenRunning + second + kAMoment}), {75, 137}, 3);
}

TEST(who_ends_mpirun_ends_all) {
    if (!mpirun_is_there()) return skip("no mpirun");
    for (const char* signal : {"TERM", "INT", "KILL"})
        expect_silence(run_job({.kind = Kind::Mpirun, .ranks = 3,
                                .meanwhile = kWhenRunning + "kill -" + signal + " $pid" + kAMoment}),
                       {1, 75, 130, 137, 143}, 4);
}

TEST(signals_reach_the_child) {
    for (const char* signal : {"TERM", "INT", "USR2"})
        expect_silence(run_job({.meanwhile = kWhenRunning + "kill -" + signal + " $pid"}),
                       {kExitRestart}, 1.5, 1);
    // not caught by the program: as if there were no supervisor (unless nohup started the tests)
    signal(SIGHUP, SIG_DFL);
    expect_silence(run_job({.meanwhile = kWhenRunning + "kill -HUP $pid"}), {129}, 1.5);
}

// A terminal's stop signal has no effect on a process group without a parent in its session, such as a job of
// a closed shell.
TEST(stopped_and_continued_as_one) {
    const string state_of = "sed 's/.*) //' /proc/";
    const Ran probe = run("sleep 9 & kill -TSTP $!; sleep 0.1; " + state_of +
                          "$!/stat | cut -c1; kill -9 $!");
    if (probe.out != "T\n") return skip("these tests run in an orphaned process group");
    const string state = state_of + "$(cat $dir/pid.0)/stat | cut -c1 >&2\n";
    const Ended e = run_job({.meanwhile = kWhenRunning + "kill -TSTP $pid; sleep 0.3\n" + state +
                             "kill -CONT $pid; sleep 0.3\n" + state + "kill -TERM $pid"});
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
        setenv("FAKE_DIR", dir.c_str(), 1);
        setenv("FAKE_TIMEOUT", "60", 1);
        setenv("FAKE_STEPS", "1000000", 1);
        setenv("FAKE_THREADS", "0", 1);
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
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == kExitRestart, "status %d, '%s'", status,
           shown.c_str());
    EXPECT(lines_of(shown, "stopping after this step", "") == 1, "'%s'", shown.c_str());
}
