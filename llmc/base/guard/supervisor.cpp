#include "llmc/base/guard/supervisor.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "llmc/base/check.h"
#include "llmc/base/guard/hangs.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/guard/screen.h"
#include "llmc/base/guard/signals.h"

inline namespace guard {

static constexpr double kTick = 0.1;            // seconds between two looks at the page
static constexpr double kLauncherEnds = 15;     // seconds for mpirun to end, after its rank
static constexpr double kSettle = 5;            // seconds granted to the screen at the end

// ---------------------------------------------------------------------------------------------------------
// the child's side

static void become_child(pid_t parent, ProgressPage* page, Screen& screen, const sigset_t& mask) {
    // mpirun signals the whole process group. The child has a group of its own, and the supervisor passes
    // signals on to it.
    if (launcher().owns_us) setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitRestart);
    progress_page = page;
    screen.enter();
    join_progress(launcher().rank, launcher().world);
    note_crashes();
    sigprocmask(SIG_SETMASK, &mask, nullptr);
}

// ---------------------------------------------------------------------------------------------------------
// the supervisor's side

struct Supervisor {
    ProgressPage* page;
    Screen& screen;
    pid_t child, parent;        // parent: the launcher
    sigset_t awaited;   // signals that the supervisor takes by sigtimedwait()
    bool received[NSIG] = {};
    int stopped_by = 0;         // signal that stopped the child
    // The machine's count of kills for lack of memory, 10 to 20 s ago and within the last 10 s. Only a recent
    // kill can be of this child: the count includes other users' processes.
    const char* vmstat;
    long oom_before = out_of_memory_kills(vmstat), oom_recent = oom_before;
    double oom_age = 0;
    HangFinder finder{*page};

    int run();
    void settle_screen() const;

private:
    bool launched() const { return launcher().owns_us && launcher().world > 1; }
    int end_quietly() const;
    int obituary(int local, const std::string& what, const std::string& cause, int code) const;
    int died(int status);
    int exited(int code);
    int hangs(int local) const;
    void forward(const siginfo_t& info);
    void look(double seconds);
    bool waits(int local) const { return finder.waits(local) && !stopped_by; }
    bool running() const;
    int busy_rank() const;
};

// Ends the child, and with the child the rank's part of the job.
int Supervisor::end_quietly() const {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return kExitRestart;
}

bool Supervisor::running() const {
    for (int i = 0; i < page->used; i++) {
        const Phase p = page->ranks[i].phase;
        if (p != Phase::Start && p != Phase::End) return true;
    }
    return false;
}

static std::string named(int signal) {
    const char* name = sigabbrev_np(signal);
    return fmt::format("signal {} (SIG{})", signal, name ? name : "?");
}

static std::string doing(Phase p, long long step) {
    switch (p) {
        case Phase::Start: return fmt::format("starting (step {})", step);
        case Phase::Load: return fmt::format("loading (step {})", step);
        case Phase::Train: return fmt::format("training step {}", step);
        case Phase::Evaluate: return fmt::format("evaluating at step {}", step);
        case Phase::Sample: return fmt::format("sampling at step {}", step);
        case Phase::Save: return fmt::format("saving at step {}", step);
        case Phase::End: return fmt::format("ending after step {}", step);
    }
    return "";
}

// A rank that does not wait for the others; else the first rank.
int Supervisor::busy_rank() const {
    for (int i = 0; i < page->used; i++)
        if (page->ranks[i].joined && !page->ranks[i].waits_for_ranks()) return i;
    return 0;
}

// Waits until the output is on the screen, at most kSettle. A program whose work is its output waits for its
// reader.
void Supervisor::settle_screen() const {
    while (!screen.settle(kSettle) && page->all_is_shown) {}
}

// local < 0: every rank of the process. A single write, so that lines of several processes do not mix.
int Supervisor::obituary(int local, const std::string& what, const std::string& cause, int code) const {
    const RankProgress& r = page->ranks[local < 0 ? busy_rank() : local];
    const int last = page->ranks[std::max<int>(page->used, 1) - 1].joined - 1;
    std::string who = local < 0 ? fmt::format("rank 0 to {}", last) : fmt::format("rank {}", r.joined - 1);
    if (page->world > 1) who += fmt::format(" of {}", int(page->world));
    std::string in = r.wait.text;
    if (!in.empty()) in = ", in " + in;
    const std::string line =
        fmt::format("error: {} on {} (process {}) {} while {}{}{}\n", who, host_name(), int(child),
                    what, doing(r.phase, r.step), in, cause);
    const bool readable = screen.settle(kSettle, true);
    if (first_to_speak() && readable) (void)!write(2, line.data(), line.size());
    if (launched()) hold_the_floor();
    return code;
}

// An exit without ends_on_purpose(). MPI ends a rank whose peer is gone in this way.
int Supervisor::exited(int code) {
    const bool known = code == kExitDone || (code >= kExitRestart && code <= kExitCheckpoint);
    if (page->expected || (!running() && (known || page->world == 1))) return code;
    if (launched() && waits(0)) {
        timespec courtesy = {.tv_sec = time_t(kCourtesy), .tv_nsec = 0};
        const sigset_t end = set_of({SIGTERM, SIGINT, SIGHUP});
        if (sigtimedwait(&end, nullptr, &courtesy) > 0) return kExitRestart;
    }
    return obituary(page->used > 1 ? -1 : 0, fmt::format("ended with exit code {}", code), "",
                    known && code ? code : int(kExitRestart));
}

// As if there had been no supervisor.
static void die_of(int signal) {
    const rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const sigset_t only = set_of({signal});
    std::signal(signal, SIG_DFL);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
}

int Supervisor::died(int status) {
    if (WIFEXITED(status)) return exited(WEXITSTATUS(status));
    const int signal = WTERMSIG(status);
    sigset_t pending;       // a terminal's signal that reached the child first
    sigpending(&pending);
    if (received[signal] || sigismember(&pending, signal)) {
        screen.settle(kSettle);
        die_of(signal);
    }
    std::string cause;
    if (signal == SIGKILL)
        cause = out_of_memory_kills(vmstat) > oom_before
                    ? "; likely by the kernel's out-of-memory killer, which was at work: try a lower "
                      "train.micro_batch, or more ranks"
                    : "; not by the kernel's out-of-memory killer: by hand, or a scheduler's";
    int local = page->used > 1 ? page->dying - 1 : 0;
    return obituary(local, "was killed by " + named(signal), cause, kExitRestart);
}

void Supervisor::forward(const siginfo_t& info) {
    const int signal = info.si_signo;
    received[signal] = true;
    // the terminal's reach the child too
    const bool from_terminal = info.si_code == SI_KERNEL && !launcher().owns_us;
    if (!from_terminal) kill(child, signal);
    if (signal == SIGTSTP) kill(getpid(), SIGSTOP);
}

void Supervisor::look(double seconds) {
    oom_age += seconds;
    if (oom_age > 10) {
        oom_before = oom_recent;
        oom_recent = out_of_memory_kills(vmstat);
        oom_age = 0;
    }
    screen.look(!page->all_is_shown);
    const bool waits_for_reader = page->all_is_shown && screen.stuck();
    if (!waits_for_reader) finder.look(seconds);
}

int Supervisor::hangs(int local) const {
    const double silent = finder.ranks[size_t(local)].silent;
    if (waits(local) && page->ranks[local].patience > 0) {
        obituary(local, fmt::format("has waited for {:.1f} s", silent),
                 "; not all ranks are here: some came late, or cannot reach this host. A longer "
                 "run.hang_timeout waits longer", kExitRestart);
        return end_quietly();
    }
    std::string why = waits(local) && page->world > 1 ? ", waiting for its peers" : "";
    const std::string other = page->silent_other.text;
    if (!why.empty() && !other.empty()) why += fmt::format(", of whom {} is silent", other);
    if (stopped_by) why = ", stopped by " + named(stopped_by);
    const int code = obituary(local, fmt::format("hangs: no progress for {:.1f} s{}", silent, why),
                              "; it is ended", kExitHang);
    end_quietly();
    return code;
}

int Supervisor::run() {
    const timespec tick = {.tv_sec = 0, .tv_nsec = long(kTick * 1e9)};
    double before = seconds_now();
    for (;;) {
        siginfo_t info;
        const int signal = sigtimedwait(&awaited, &info, &tick);
        if (signal > 0 && signal != SIGCHLD && signal != SIGCONT) {
            const bool end = signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
            if (launched() && end) return end_quietly();
            forward(info);
        }
        if (signal == SIGCONT) kill(child, SIGCONT);
        int status = 0;
        while (waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED) == child) {
            if (WIFSTOPPED(status)) stopped_by = WSTOPSIG(status);
            else if (WIFCONTINUED(status)) stopped_by = 0;
            else return died(status);
        }
        if (launched() && getppid() != parent) return end_quietly();
        // time in which the supervisor was stopped, or got no core, does not count
        const double now = seconds_now(), seen = std::min(now - before, 2 * kTick);
        before = now;
        look(seen);
        const int local = finder.blamed(stopped_by != 0);
        if (local >= 0) return hangs(local);
    }
}

void show_all_output() {
    if (progress_page) progress_page->all_is_shown = true;
}

void set_hang_timeout(double seconds) {
    if (progress_page) progress_page->hang_timeout = seconds;
}

void supervise(const char* vmstat) {
    if (found_progress_page()) {
        join_progress(launcher().rank, launcher().world);
        note_crashes();
        return;
    }
    ProgressPage* const page = make_progress_page();
    if (!page) return;
    std::signal(SIGCHLD, SIG_DFL);
    sigset_t awaited, before;
    sigfillset(&awaited);
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGTTIN, SIGTTOU})
        sigdelset(&awaited, s);
    sigprocmask(SIG_BLOCK, &awaited, &before);
    static Screen screen;
    screen.open();
    const pid_t self = getpid(), launcher = getppid(), child = fork();
    if (child == 0) return become_child(self, page, screen, before);
    if (child < 0) {            // no room for a process: train unsupervised
        sigprocmask(SIG_SETMASK, &before, nullptr);
        return;
    }
    progress_page = page;
    screen.start();
    Supervisor supervisor{.page = page, .screen = screen, .child = child, .parent = launcher,
                          .awaited = awaited, .vmstat = vmstat};
    const int code = supervisor.run();
    // with a host that does not answer, mpirun and its daemons wait for a quarter of an hour
    if (code != kExitDone && ::launcher().name == "mpirun") end_launcher_later(launcher, kLauncherEnds);
    supervisor.settle_screen();
    _exit(code);
}

}  // namespace guard
