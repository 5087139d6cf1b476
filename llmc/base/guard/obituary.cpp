#include "llmc/base/guard/obituary.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/progress_page.h"

inline namespace guard {

// The processes of a job on this host agree by a lock on a byte of this user's file, which the kernel frees
// with the process. Another user's file of this name tells nothing.
bool first_to_speak(const char* folder) {
    if (!progress_page) return true;
    if (progress_page->spoken.exchange(true)) return false;
    const std::string job = launcher().job;
    if (job.empty()) return true;
    const std::string path = fmt::format("{}/train_gpt.{}", folder, geteuid());
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);   // to the end
    struct stat file;
    if (fd < 0 || fstat(fd, &file) != 0 || file.st_uid != geteuid()) return true;
    struct flock byte = {};
    byte.l_type = F_WRLCK;
    byte.l_start = off_t(std::hash<std::string>()(job) >> 1);
    byte.l_len = 1;
    return fcntl(fd, F_OFD_SETLK, &byte) == 0 || (errno != EAGAIN && errno != EACCES);
}

void hold_the_floor() {
    if (progress_page && progress_page->world > 1) usleep(300000);
}

static bool ends_within(int launcher, double seconds) {
    pollfd p = {.fd = launcher, .events = POLLIN, .revents = 0};
    return poll(&p, 1, int(seconds * 1000)) != 0;
}

// mpirun's children: what connects mpirun to other hosts; of a daemon of mpirun: the ranks.
static void kill_children(pid_t parent) {
    std::error_code gone;
    const std::string threads = fmt::format("/proc/{}/task", parent);
    for (const auto& thread : std::filesystem::directory_iterator(threads, gone)) {
        std::ifstream in(thread.path() / "children");
        for (pid_t child; in >> child;) kill(child, SIGKILL);
    }
}

void end_launcher_later(pid_t launcher, double seconds) {
    static constexpr double kGrace = 1;
    const Fd fd(int(syscall(SYS_pidfd_open, launcher, 0)));
    if (!fd || !is_mpirun(launcher) || fork() != 0) return;
    setsid();                                       // mpirun signals whole groups
    const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int stream : {0, 1, 2}) dup2(null.fd, stream);
    if (!ends_within(fd.fd, seconds)) {
        kill_children(launcher);
        // mpirun handles most signals, and crashes there. This one tells scripts/child.sh of the rank's line.
        (void)syscall(SYS_pidfd_send_signal, fd.fd, SIGSTKFLT, nullptr, 0);
        if (!ends_within(fd.fd, kGrace)) (void)syscall(SYS_pidfd_send_signal, fd.fd, SIGKILL, nullptr, 0);
    }
    _exit(0);
}

void ends_on_purpose() {
    if (progress_page) progress_page->expected = true;
}

// Notes the rank whose thread crashed.
static void on_crash(int signal) {
    if (context.progress && progress_page)
        progress_page->dying = int(context.progress - progress_page->ranks) + 1;
    raise(signal);      // its action is the default again
}

void note_crashes() {
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
        struct sigaction action = {};
        if (sigaction(s, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;    // a sanitizer's
        action.sa_handler = on_crash;
        action.sa_flags = SA_RESETHAND | SA_NODEFER;
        sigaction(s, &action, nullptr);
    }
}

}  // namespace guard
