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
    std::ranges::stable_sort(p.events, {}, &ChromeEvent::begin);
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

// Names come before all events.
static double time_of(std::string_view line) {
    double time = -INFINITY;
    if (line.starts_with(kTime)) std::from_chars(line.data() + kTime.size(), line.data() + line.size(), time);
    return time;
}

std::string chrome_trace(std::span<const std::string> processes) {
    std::vector<Line> lines;
    std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    size_t bytes = file.size() + 16;
    for (const std::string_view text : processes) {
        for (size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1)
            lines.push_back({time_of(text.substr(at, end - at)), text.substr(at, end - at)});
        bytes += text.size();
    }
    std::ranges::stable_sort(lines, {}, &Line::time);
    file.reserve(bytes + lines.size());
    for (const Line& line : lines) file.append(line.text).append(",\n");
    if (file.ends_with(",\n")) file.resize(file.size() - 2);
    return file + "\n]}\n";
}

}  // namespace report
