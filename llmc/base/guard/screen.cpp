#include "llmc/base/guard/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "llmc/base/check.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace guard {

static constexpr int kPipeBytes = 1 << 20;
static constexpr double kStuck = 1;         // seconds

// ---------------------------------------------------------------------------------------------------------
// a pipe

int ScreenStream::waiting_bytes() const {
    int bytes = 0;
    return ioctl(from, FIONREAD, &bytes) == 0 ? bytes : 0;
}

bool ScreenStream::stuck() const {
    const double since = writing_since;
    return since > 0 && seconds_now() - since > kStuck;
}

bool ScreenStream::idle() const { return gone || (!busy && waiting_bytes() == 0); }

bool ScreenStream::show(const char* text, size_t size) {
    while (size > 0) {
        writing_since = seconds_now();
        const ssize_t n = write(to, text, size);
        writing_since = 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) {             // somebody else's O_NONBLOCK
            pollfd ready = {.fd = to, .events = POLLOUT, .revents = 0};
            poll(&ready, 1, 100);
            continue;
        }
        if (n <= 0) return false;
        text += n;
        size -= size_t(n);
    }
    return true;
}

bool ScreenStream::copy() {
    pollfd there = {.fd = from, .events = POLLIN, .revents = 0};
    if (poll(&there, 1, -1) < 0) return errno == EINTR;
    std::string text;
    {
        const std::lock_guard lock(reading);
        char bytes[4096];
        busy = true;
        const bool has = waiting_bytes() > 0 || there.revents & POLLHUP;
        const ssize_t n = has ? read(from, bytes, sizeof bytes) : -1;
        if (dropped > 0) {
            text = fmt::format("{}({} lines are not shown: nobody read them. The files in run.dir have "
                               "everything)\n", at_line_start ? "" : "\n", dropped);
            text += rest;
            dropped = 0;
            rest.clear();
        }
        text.append(bytes, size_t(std::max<ssize_t>(n, 0)));
        if (n == 0 && text.empty()) gone = true;
        if (!text.empty()) at_line_start = text.back() == '\n';
    }
    // who is not read any more gets to know: the next write into the pipe fails
    if (!gone && !show(text.data(), text.size())) {
        const std::lock_guard lock(reading);
        gone = true;
        close(from);
    }
    busy = false;
    return !gone;
}

void ScreenStream::drop(int limit) {
    if (gone || !stuck()) return;
    const std::lock_guard lock(reading);
    while (waiting_bytes() > limit) {
        char bytes[65536];
        const ssize_t n = read(from, bytes, sizeof bytes);
        if (n <= 0) return;
        dropped += uint64_t(std::count(bytes, bytes + n, '\n'));
        rest.append(bytes, size_t(n));
        const size_t end = rest.rfind('\n');
        if (end != rest.npos) rest.erase(0, end + 1);
    }
}

// ---------------------------------------------------------------------------------------------------------
// stdout and stderr

static bool can_stall(const struct stat& s, int descriptor) {
    return S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode) || isatty(descriptor);
}

void Screen::open() {
    struct stat of[2] = {};
    note_terminals();
    for (int i : {0, 1}) {
        const int descriptor = i + 1;
        if (fstat(descriptor, &of[i]) != 0 || !can_stall(of[i], descriptor)) continue;
        const bool same = i == 1 && of[0].st_dev == of[1].st_dev && of[0].st_ino == of[1].st_ino;
        if (same && pipe_of[0] >= 0) pipe_of[1] = 0;
        else if (pipe2(pipes[i].ends, O_CLOEXEC) == 0) {
            pipe_of[i] = i;
            fcntl(pipes[i].ends[1], F_SETPIPE_SZ, kPipeBytes);      // if the system allows
        }
    }
}

void Screen::enter() {
    for (int i : {0, 1})
        if (pipe_of[i] >= 0) dup2(pipes[pipe_of[i]].ends[1], i + 1);
    for (Pipe& p : pipes)
        for (int& end : p.ends)
            if (end >= 0) close(end);
    if (on_terminal(1)) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);     // as on a terminal
}

void Screen::start() {
    for (int i : {0, 1}) {
        Pipe& p = pipes[i];
        if (p.ends[0] < 0) continue;
        close(p.ends[1]);
        p.stream = new ScreenStream(p.ends[0], i + 1);      // lives as long as the process
        std::thread thread;
        p.copied_here = !start_thread(thread, [stream = p.stream] { while (stream->copy()) {} }).empty();
        if (!p.copied_here) thread.detach();
    }
}

void Screen::look(bool drops) {
    for (Pipe& p : pipes) {
        if (!p.stream) continue;
        while (p.copied_here && !p.stream->idle()) p.stream->copy();
        if (drops) p.stream->drop(kPipeBytes / 2);
    }
}

bool Screen::stuck() const {
    return std::any_of(pipes, pipes + 2, [](const Pipe& p) { return p.stream && p.stream->stuck(); });
}

bool Screen::settle(double seconds, const Pipe& p) const {
    if (!p.stream) return true;
    for (const double end = seconds_now() + seconds; seconds_now() < end; usleep(1000)) {
        while (p.copied_here && !p.stream->idle()) p.stream->copy();
        if (p.stream->idle()) return true;
    }
    return false;
}

bool Screen::settle(double seconds) const {
    const double start = seconds_now();
    const bool first = settle(seconds, pipes[0]);
    return settle(std::max(0.0, seconds - (seconds_now() - start)) + 0.001, pipes[1]) && first;
}

bool Screen::settle_errors(double seconds) const {
    return pipe_of[1] < 0 || settle(seconds, pipes[pipe_of[1]]);
}

}  // namespace guard
