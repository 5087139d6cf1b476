// Progress of long work, on stderr.
//
// Where stdout and stderr are both a terminal: one line that is redrawn in place, with share, rate and time
// left. Elsewhere: a plain line each half minute at most, so that a log of short work has none. Calls are
// cheap: they draw four times a second at most.
#pragma once
#include <cstdint>
#include <string>

struct Progress {
    std::string what;        // "encode"
    const char* unit;        // what is counted: "B" is printed as MB
    uint64_t total;          // 0: not known
    double started, drawn;
    bool terminal, shown = false;

    Progress(std::string what, const char* unit, uint64_t total);
    ~Progress() { done(); }
    Progress(const Progress&) = delete;
    void update(uint64_t count);
    void done();             // removes the line from a terminal
};

// Whether what goes to descriptor 1 or 2 ends on a terminal: as it was when note_terminals() was called.
bool on_terminal(int descriptor);
void note_terminals();

double seconds_now();        // of a monotonic clock
