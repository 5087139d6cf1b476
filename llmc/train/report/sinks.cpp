#include "llmc/train/report/sinks.h"

inline namespace report {

// The table; each row is in the file of its name. A sink that the settings do not ask for has no add().
Sink event_file(const Config& cfg), prometheus(const Config& cfg);
static constexpr auto kSinks = {event_file, prometheus};

std::vector<Sink> sinks_of(const Config& cfg) {
    std::vector<Sink> all;
    for (const auto sink : kSinks)
        if (Sink s = sink(cfg); s.add) all.push_back(std::move(s));
    return all;
}

}  // namespace report
