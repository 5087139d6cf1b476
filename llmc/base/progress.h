// Progress of long work, on stderr.
//
// If stdout and stderr are both a terminal: a line redrawn in place, with share, rate and time left.
// Elsewhere: a plain line each half minute at most; short work logs no line. Calls are cheap: at most four
// redraws a second.
#pragma once
#include <cstdint>
#include <string>

inline namespace base {

struct Progress {
    std::string what;        // "encode"
    const char* unit;        // unit of the count: "B" is printed as MB
    uint64_t total;          // 0: not known
    double started, drawn;   // by seconds_now(); drawn: the last line
    bool terminal, shown = false;

    Progress(std::string what, const char* unit, uint64_t total);
    ~Progress() { done(); }
    Progress(const Progress&) = delete;
    void update(uint64_t count);
    void done();             // removes the line from a terminal
};

double seconds_now();        // of a monotonic clock
std::string today();         // "2026-11-26", in UTC

}  // namespace base
