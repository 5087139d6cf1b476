#include "llmc/train/report/chrome_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "llmc/base/check.h"

inline namespace report {

static constexpr std::string_view kTime = "{\"ts\":";          // the beginning of an event's line

// A name or a place of a process or a lane: an event of the kind "metadata".
static std::string metadata(int pid, int tid, const char* what, const JsonObject& args) {
    return JsonObject().add("ph", "M").add("pid", pid).add("tid", tid).add("name", what).add("args", args)
        .str() + "\n";
}

// In eighths of a microsecond: 1000 times such a number is exact in a double. Perfetto cuts fractions of a
// nanosecond off "dur", and drops an event that ends a nanosecond after the event around it.
static double rounded(double seconds) { return std::round(8e6 * seconds) / 8; }

std::string chrome_lines(int pid, ChromeProcess p, double origin) {
    std::stable_sort(p.events.begin(), p.events.end(),
                     [](const ChromeEvent& a, const ChromeEvent& b) { return a.begin < b.begin; });
    const auto named = [](const std::string& name) { return JsonObject().add("name", name); };
    std::string lines = metadata(pid, 0, "process_name", named(p.name));
    lines += metadata(pid, 0, "process_sort_index", JsonObject().add("sort_index", pid));
    for (size_t i = 0; i < p.lanes.size(); i++)
        lines += metadata(pid, int(i), "thread_name", named(p.lanes[i]));
    for (const ChromeEvent& e : p.events) {
        const double begin = rounded(e.begin - origin), end = rounded(e.end - origin);
        const auto fixed = [](double v) { return fmt::format("{:.3f}", v); };
        lines += JsonObject().raw("ts", fixed(begin)).raw("dur", fixed(std::max(0., end - begin)))
            .add("ph", "X").add("pid", pid).add("tid", e.lane).add("cat", e.category).add("name", e.name)
            .add("args", e.args).str() + "\n";
    }
    return lines;
}

namespace {
struct Line { double time; std::string_view text; };
}  // namespace

static double time_of(std::string_view line) {
    double time = 0;
    std::from_chars(line.data() + kTime.size(), line.data() + line.size(), time);
    return time;
}

std::string chrome_trace(std::span<const std::string> processes) {
    std::vector<Line> events;
    std::string names;
    size_t bytes = 0;
    for (const std::string& text : processes) {
        bytes += text.size();
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size());
            const std::string_view line = std::string_view(text).substr(at, end - at);
            if (line.starts_with(kTime)) events.push_back({time_of(line), line});
            else names.append(line).append(",\n");
            at = end + 1;
        }
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const Line& a, const Line& b) { return a.time < b.time; });
    std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" + names;
    file.reserve(file.size() + bytes + events.size() + 16);
    for (const Line& line : events) file.append(line.text).append(",\n");
    if (file.ends_with(",\n")) file.resize(file.size() - 2);
    return file + "\n]}\n";
}

}  // namespace report
