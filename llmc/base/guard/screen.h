// What the program prints, passed on to the screen by its supervisor: a reader that stalls (a pager, ^S, a
// slow terminal) must not stop training.
//
// The program writes to a pipe of 1 MiB in place of stdout or stderr, where that is a terminal, a pipe or a
// socket; files are written directly. A thread of the supervisor copies the pipe to the screen. Where the
// screen takes nothing for a second and the pipe is half full, the oldest lines are dropped, and a line on
// the screen says how many. stdout and stderr that are the same file share a pipe, which keeps their order.
//
// --plan, --generate and other programs whose work is their output drop nothing: they wait.
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <thread>

struct ScreenStream {
    ScreenStream(int from, int to) : from(from), to(to) {}

    // Copies what is there, once. False: the pipe's writers are gone, or the screen is.
    bool copy();
    // Where the screen is stuck: drops whole lines until the pipe holds at most `limit` bytes.
    void drop(int limit);
    bool stuck() const;                     // in one write for more than a second
    bool idle() const;                      // all that was printed is on the screen, or the screen is gone

    int from, to;                           // the pipe's end; the screen

private:
    bool show(const char* text, size_t size);
    int waiting_bytes() const;              // in the pipe

    mutable std::mutex reading;             // of the pipe, and of:
    std::string rest;                       // begins the next line that is shown
    uint64_t dropped = 0;                   // lines since one was shown
    bool at_line_start = true;              // of the screen
    std::atomic<bool> busy = false, gone = false;
    std::atomic<double> writing_since = 0;  // 0: no write is under way
};

struct Screen {
    // Before the fork: makes the pipes. Streams that it cannot make one for stay as they are.
    void open();
    // In the program: its stdout and stderr are the pipes from here on.
    void enter();
    // In the supervisor: the threads begin. Where none can be made, look() copies.
    void start();
    // At each tick. drops: what the program prints may be dropped.
    void look(bool drops);
    bool stuck() const;                     // either stream
    // Waits until what was printed is on the screen, at most so many seconds. False: it is not.
    bool settle(double seconds) const;
    bool settle_errors(double seconds) const;       // what was printed to descriptor 2

private:
    struct Pipe { int ends[2] = {-1, -1}; ScreenStream* stream = nullptr; bool copied_here = false; };
    Pipe pipes[2];                          // of descriptors 1 and 2
    int pipe_of[2] = {-1, -1};              // of descriptors 1 and 2; -1: written directly
    bool settle(double seconds, const Pipe& pipe) const;
};
