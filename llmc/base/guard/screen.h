// Passes the program's output on to the screen: a stalled reader (a pager, ^S, a slow terminal) must not stop
// training.
//
// The program writes to a pipe of 1 MiB in place of stdout or stderr, if the stream is a terminal, a pipe or
// a socket; files are written directly. A thread of the supervisor copies the pipe to the screen. When the
// screen accepts nothing for a second and the pipe is half full, the oldest lines are dropped. A line on the
// screen has the number of dropped lines. stdout and stderr to the same file share a pipe, to keep the order.
//
// --plan, --generate and other programs whose work is their output drop nothing: the program waits.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

inline namespace guard {

struct ScreenStream {
    ScreenStream(int from, int to) : from(from), to(to) {}

    // Copies the pipe's content, once. False: the pipe's writers are gone, or the screen is.
    bool copy();
    // If the screen is stuck: drops whole lines until the pipe holds at most `limit` bytes.
    void drop(int limit);
    bool stuck() const;                     // in a single write for more than a second
    bool idle() const;                      // output is complete on the screen, or the screen is gone

    int from, to;                           // the pipe's end; the screen
    int program = -1;                       // the pipe's other end
    bool copied_here = false;               // without a thread

private:
    bool show(const char* text, size_t size);
    int waiting_bytes() const;              // in the pipe

    mutable std::mutex reading;             // guards reads of the pipe, and:
    std::string rest;                       // beginning of the next shown line
    uint64_t dropped = 0;                   // lines since the last shown line
    bool at_line_start = true;              // of the screen
    std::atomic<bool> busy = false, gone = false;
    std::atomic<double> writing_since = 0;  // 0: no write is under way
};

struct Screen {
    // Before the fork: makes the pipes. A stream whose pipe cannot be made keeps its target.
    void open();
    // In the program: connects stdout and stderr to the pipes.
    void enter();
    // In the supervisor: starts the threads. If the system has no thread left, look() copies.
    void start();
    // At each tick. drops: output may be dropped.
    void look(bool drops);
    bool stuck() const;                     // either stream
    // Waits until the output is on the screen, at most `seconds`. False: output is missing. errors_alone: the
    // output of descriptor 2.
    bool settle(double seconds, bool errors_alone = false);

private:
    std::vector<std::unique_ptr<ScreenStream>> streams;
    ScreenStream* of[2] = {};               // of descriptors 1 and 2; null: written directly
};

}  // namespace guard
