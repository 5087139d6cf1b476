#include "llmc/base/guard/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>

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
    // Nobody reads our output any more. `gone` closes the pipe, so that the writer's next write fails.
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
    struct stat target[2] = {};
    note_terminals();
    for (int i : {0, 1}) {
        int ends[2];
        if (fstat(i + 1, &target[i]) != 0 || !can_stall(target[i], i + 1)) continue;
        const bool same = target[0].st_dev == target[1].st_dev && target[0].st_ino == target[1].st_ino;
        if (i == 1 && same && of[0]) of[1] = of[0];
        else if (pipe2(ends, O_CLOEXEC) == 0) {
            of[i] = streams.emplace_back(new ScreenStream(ends[0], i + 1)).get();
            of[i]->program = ends[1];
            fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);       // if the system allows
        }
    }
}

void Screen::enter() {
    for (int i : {0, 1})
        if (of[i]) dup2(of[i]->program, i + 1);
    for (const auto& s : streams) {
        close(s->from);
        close(s->program);
    }
    if (on_terminal(1)) setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);     // as on a terminal
}

void Screen::start() {
    for (const auto& s : streams) {
        close(s->program);
        std::thread thread;
        s->copied_here = !start_thread(thread, [stream = s.get()] { while (stream->copy()) {} }).empty();
        if (!s->copied_here) thread.detach();
    }
}

void Screen::look(bool drops) {
    for (const auto& s : streams) {
        while (s->copied_here && !s->idle()) s->copy();
        if (drops) s->drop(kPipeBytes / 2);
    }
}

bool Screen::stuck() const {
    return std::ranges::any_of(streams, [](const auto& s) { return s->stuck(); });
}

bool Screen::settle(double seconds, bool errors_alone) {
    const auto shown = [&](const auto& s) { return s->idle() || (errors_alone && s.get() != of[1]); };
    for (const double end = seconds_now() + seconds; seconds_now() < end; usleep(1000)) {
        for (const auto& s : streams)
            while (s->copied_here && !shown(s)) s->copy();
        if (std::ranges::all_of(streams, shown)) return true;
    }
    return false;
}

}  // namespace guard
