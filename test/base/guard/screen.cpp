// A stalled reader stops neither training nor the program's end; unread output is dropped by the line.
#include "llmc/base/guard/screen.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/progress.h"
#include "test/program.h"

namespace {

struct Pipe {
    int ends[2];
    explicit Pipe(int bytes) {
        CHECK(pipe(ends) == 0 && fcntl(ends[1], F_SETPIPE_SZ, bytes) >= bytes, "no pipe");
    }
    Pipe(const Pipe&) = delete;
    ~Pipe() { end(0), end(1); }
    void end(int i) {
        if (ends[i] >= 0) close(ends[i]);
        ends[i] = -1;
    }
    void write(const std::string& text) const {
        CHECK(::write(ends[1], text.data(), text.size()) == ssize_t(text.size()), "a short write");
    }
    std::string read_all() const {      // until its writers are gone
        std::string text;
        char bytes[4096];
        for (ssize_t n; (n = ::read(ends[0], bytes, sizeof bytes)) > 0;) text.append(bytes, size_t(n));
        return text;
    }
};

template <class F> bool until(F f, double seconds = 20) {
    for (const double end = seconds_now() + seconds; seconds_now() < end; usleep(10000))
        if (f()) return true;
    return f();
}

std::string line_of(int i) { return "line " + std::to_string(i) + "\n"; }

// Output of a program with `lines` lines on a screen that reads nothing until the last line is printed.
std::string shown_late(int lines, bool drops) {
    Pipe printed(1 << 20), screen(4096);
    ScreenStream stream(printed.ends[0], screen.ends[1]);
    std::thread copier([&] { while (stream.copy()) {} });
    for (int i = 0; i < 2000; i++) printed.write(line_of(i));
    EXPECT(until([&] { return stream.stuck(); }), "the screen takes all");
    for (int i = 2000; i < lines; i++) {
        printed.write(line_of(i));
        if (drops && i % 1000 == 0) stream.drop(1 << 16);
    }
    std::string shown;
    std::thread reader([&] { shown = screen.read_all(); });
    EXPECT(until([&] { return stream.idle(); }), "it is not idle when all was read");
    printed.end(1);
    copier.join();
    screen.end(1);
    reader.join();
    return shown;
}

struct Started {
    pid_t pid;
    Pipe out{4096};

    explicit Started(const std::string& command) {
        pid = fork();
        if (pid == 0) {
            dup2(out.ends[1], 1);
            out.end(0), out.end(1);
            execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
            _exit(127);
        }
        out.end(1);
    }
    int code() const {
        int status = 0;
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
};

}  // namespace

TEST(nothing_is_lost_of_what_fits) {
    std::string all;
    for (int i = 0; i < 20000; i++) all += line_of(i);
    EXPECT(shown_late(20000, false) == all, "lines are lost, or in another order");
}

TEST(lines_are_dropped_whole_and_counted) {
    const int lines = 60000;
    const std::string shown = shown_late(lines, true), notice = " lines are not shown";
    std::istringstream in(shown);
    int next = 0, notices = 0, cut = 0;
    for (std::string line; std::getline(in, line);) {
        if (line + "\n" == line_of(next)) next++;
        else if (line.find(notice) != line.npos) notices++, next += std::stoi(line.substr(1));
        else EXPECT(line_of(next).starts_with(line) && ++cut == 1,      // a dropped line
                    "'%s' where line %d was due", line.c_str(), next);
    }
    EXPECT(next == lines, "the last line is %d of %d, with those that are said to be dropped", next, lines);
    EXPECT(notices == 1, "%d lines say how many are not shown", notices);
}

TEST(a_screen_that_is_gone_is_told_to_who_prints) {
    Pipe printed(1 << 20), screen(4096);
    screen.end(0);
    std::signal(SIGPIPE, SIG_IGN);
    printed.write("a line\n");
    {
        ScreenStream stream(printed.ends[0], screen.ends[1]);
        EXPECT(!stream.copy() && stream.idle(), "it goes on");
    }
    EXPECT(write(printed.ends[1], "x", 1) < 0 && errno == EPIPE, "the pipe takes what nobody reads");
    printed.ends[0] = -1;       // closed
}

TEST(a_run_goes_on_while_nobody_reads) {
    const std::string config = test::tiny_program_config("stalled", {{"train", {{"steps", 100}}}});
    Started run("./train_gpt " + config + " --log.every=1 --eval.every=0 --run.hang_timeout=3 2>/dev/null");
    EXPECT(until([] { return test::rows_of("stalled", "done").size() == 1; }, 60),
           "the run has stopped at step %zu", test::rows_of("stalled", "train").size());
    usleep(4000000);            // longer than a hang
    const std::string shown = run.out.read_all();
    EXPECT(run.code() == 0, "the code");
    EXPECT(shown.find("step   100") != shown.npos || shown.find("100/100") != shown.npos, "'%s'",
           shown.substr(shown.size() - std::min<size_t>(shown.size(), 300)).c_str());
}

// stderr has no buffer: each print() is a write.
TEST(a_print_that_fails_does_not_throw) {
    const std::unique_ptr<FILE, int (*)(FILE*)> full(fopen("/dev/full", "w"), fclose);
    setvbuf(full.get(), nullptr, _IONBF, 0);
    print(full.get(), "step {}\n", 1);
    EXPECT(ferror(full.get()), "the write has not failed");
}

TEST(a_signal_ends_a_run_whose_screen_is_stuck) {
    const std::string config = test::tiny_program_config("stuck", {{"train", {{"steps", 1000000}}}});
    Started run("./train_gpt " + config + " --log.every=1 --eval.every=0 --run.hang_timeout=3 2>/dev/null");
    EXPECT(until([] { return test::rows_of("stuck", "train").size() > 100; }, 60), "it has stopped");
    kill(run.pid, SIGTERM);
    const double start = seconds_now();
    EXPECT(run.code() == kExitRestart, "the code");
    EXPECT(seconds_now() - start < 30, "%.1f s", seconds_now() - start);
}

TEST(the_obituary_does_not_wait_for_stdout) {
    const std::string config = test::tiny_program_config("dead", {{"train", {{"steps", 1000000}}}});
    const std::string errors = test::folder("dead.err");
    Started run("env FAULT=train:150:kill ./train_gpt " + config +
                " --log.every=1 --eval.every=0 2>" + errors);
    EXPECT(until([&] { return test::text_of(errors).find("SIGKILL") != std::string::npos; }, 60), "'%s'",
           test::text_of(errors).c_str());
    EXPECT(run.code() == kExitRestart, "the code");
}
