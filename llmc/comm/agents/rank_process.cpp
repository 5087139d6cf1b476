#include "llmc/comm/agents/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "llmc/base/check.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/host/openmp.h"
#include "llmc/base/progress.h"

inline namespace agents {

// In the new process.
[[noreturn]] static void become_rank(char** argv, pid_t agent, ProgressPage* page, int channel,
                                     const sigset_t& mask) {
    setpgid(0, 0);                          // a terminal's signals reach the agent, which passes them on
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent) _exit(kExitRestart);
    progress_page = page;
    setenv(kAgentVariable, std::to_string(channel).c_str(), 1);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    limit_spinning(argv, keep_progress_page);           // starts the program anew, unless threads may spin
    if (keep_progress_page()) execv("/proc/self/exe", argv);
    _exit(kExitInternal);
}

bool RankProcess::start(char** argv, const sigset_t& mask, double hang_timeout, bool again) {
    int ends[2];
    page = make_progress_page();
    if (!page || socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return false;
    page->hang_timeout = hang_timeout;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    const pid_t self = getpid();
    process = fork();
    if (process == 0 && again) unsetenv("FAULT");
    if (process == 0) become_rank(argv, self, page, ends[1], mask);
    ::close(ends[1]);
    close_page_file();
    channel = MessageChannel(Socket(ends[0]));
    if (process < 0) {
        forget();
        return false;
    }
    started = seconds_now();
    finder.reset(new HangFinder{*page});
    return true;
}

void RankProcess::forget() {
    if (page) munmap(page, sizeof *page);
    *this = RankProcess();
}

void RankProcess::signal(int number) const {
    if (thread) thread->killed = thread->killed || number == SIGKILL;
    else if (process > 0) kill(process, number);
}

void RankProcess::kill_for(const std::string& why) {
    if (cause.empty()) cause = why;
    signal(SIGKILL);
}

std::optional<int> RankProcess::ended() {
    int status = 0;
    if (thread) return thread->code == RankThread::kRuns ? std::nullopt : std::optional<int>(thread->code);
    while (process > 0 && waitpid(process, &status, WNOHANG | WUNTRACED | WCONTINUED) == process) {
        if (WIFSTOPPED(status)) stopped_by = WSTOPSIG(status);
        else if (WIFCONTINUED(status)) stopped_by = 0;
        else return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    }
    return std::nullopt;
}

bool RankProcess::hangs(double seconds) {
    if (!finder || !page->used) return false;
    finder->look(seconds);
    const int local = finder->blamed(stopped_by != 0);
    return local >= 0 && (stopped_by || !finder->waits(local));
}

std::string RankProcess::doing() const {
    const RankProgress& r = page->ranks[0];
    const std::string wait = r.wait.text;
    return fmt::format("in phase {} of step {}{}", name_of(r.phase), r.step.load(),
                       wait.empty() ? "" : ", in " + wait);
}

std::string end_of(int code) {
    if (code >= 0) return fmt::format("ended with exit code {}", code);
    const char* const name = sigabbrev_np(-code);
    return fmt::format("was killed by signal {} (SIG{})", -code, name ? name : "?");
}

}  // namespace agents
