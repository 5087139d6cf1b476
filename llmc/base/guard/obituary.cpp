#include "llmc/base/guard/obituary.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/progress_page.h"

inline namespace guard {

// Name of a socket without a file: the kernel gives the name to a single process, and frees it with the
// process.
struct AbstractName {
    sockaddr_un address = {};
    socklen_t length;

    explicit AbstractName(const std::string& name) {
        address.sun_family = AF_UNIX;
        const size_t n = std::min(name.size(), sizeof address.sun_path - 1);
        std::copy_n(name.begin(), n, address.sun_path + 1);
        length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + n);
    }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

static int stream_socket() { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// Any user on the host may bind the name. The kernel reports the user of a listening socket.
static bool held_by_this_user(const AbstractName& name) {
    for (int tries = 0; tries < 20; tries++) {
        const Fd peer(stream_socket());
        ucred user = {};
        socklen_t size = sizeof user;
        if (peer && connect(peer.fd, name.get(), name.length) == 0)
            return getsockopt(peer.fd, SOL_SOCKET, SO_PEERCRED, &user, &size) == 0 && user.uid == geteuid();
        if (errno != ECONNREFUSED) return false;
        usleep(5000);       // the holder has the name, and listens in a moment
    }
    return false;
}

bool first_to_speak() {
    if (!progress_page) return true;
    if (progress_page->spoken.exchange(true)) return false;
    const std::string job = launcher().job;
    if (job.empty()) return true;
    const AbstractName name("train_gpt." + std::to_string(geteuid()) + "." + job);
    const int fd = stream_socket();     // open until this process ends
    if (fd < 0) return true;
    if (bind(fd, name.get(), name.length) != 0) return errno != EADDRINUSE || !held_by_this_user(name);
    (void)listen(fd, SOMAXCONN);
    return true;
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
