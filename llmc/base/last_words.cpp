#include "llmc/base/last_words.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string>

#include "llmc/base/launcher.h"
#include "llmc/base/progress_page.h"

// The name of a socket without a file: the kernel gives it to one process, and frees it when that one ends.
bool first_to_speak() {
    if (!progress_page) return true;
    if (progress_page->spoken.exchange(true)) return false;
    const std::string job = launcher().job;
    if (job.empty()) return true;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string name = ("train_gpt." + job).substr(0, sizeof address.sun_path - 1);
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const auto length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (fd < 0) return true;
    return bind(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0 || errno != EADDRINUSE;
}

void hold_the_floor() {
    if (progress_page && progress_page->world > 1) usleep(300000);
}

void ends_on_purpose() {
    if (progress_page) progress_page->expected = true;
}

// Which of several ranks of a process it was.
static void on_crash(int signal) {
    if (context.progress && progress_page)
        progress_page->dying = int(context.progress - progress_page->slots) + 1;
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
