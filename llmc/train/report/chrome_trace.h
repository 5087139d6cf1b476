// A trace of ranks in Chrome's format, which Perfetto and chrome://tracing open.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/json/json.h"

inline namespace report {

// A complete event (ph: X).
struct ChromeEvent {
    double begin, end;              // seconds
    int lane;
    const char* category;
    std::string name;
    JsonObject args = JsonObject(); // {"block":3,"bytes":96}; may be empty
};

// The events of a rank, and the names of the rank's lanes by their number.
struct ChromeProcess {
    std::string name;
    std::vector<std::string> lanes;
    std::vector<ChromeEvent> events;
};

// A line per event or name, each a JSON object, sorted by time. origin: time 0 of the trace. Times are
// multiples of 1/8 microsecond.
// Events that begin at the same time keep their order. REQUIRES: in a lane, an event stands before the events
// that it contains; an event without length stands before the next event.
std::string chrome_lines(int pid, ChromeProcess process, double origin);

// The file, of the lines of every process: names, then events, sorted by time.
std::string chrome_trace(std::span<const std::string> processes);

}  // namespace report
