#include "llmc/train/log/trace_lanes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "llmc/base/json/json.h"

inline namespace logs {

using Event = Timeline::Event;

static const char* category_of(Timeline::Kind kind) {
    switch (kind) {
    case Timeline::Kind::Op: return "op";
    case Timeline::Kind::Collective: return "collective";
    case Timeline::Kind::Wait: return "wait";
    case Timeline::Kind::Copy: return "copy";
    }
    return "op";
}

// "matmul_forward", "shard.all_gather"; of a wait for a collective "wait shard.all_gather".
static std::string name_of(const Event& e) {
    const std::string name = e.axis ? fmt::format("{}.{}", e.axis, e.name) : e.name;
    return e.axis && e.kind == Timeline::Kind::Wait ? "wait " + name : name;
}

// [512,192,768], up to the last that is not 0
static std::vector<int> dims_of(const Cost& c) {
    const auto sizes = c.sizes();
    std::vector<int> dims(sizes.begin(), sizes.end());
    while (!dims.empty() && dims.back() == 0) dims.pop_back();
    return dims;
}

// seconds: of the work itself, for rates; 0: unknown.
static JsonObject args_of(const Walk& walk, const Event& e, double seconds) {
    JsonObject args;
    if (e.block >= 0) args.add("block", e.block);
    if (e.micro >= 0) args.add("micro_batch", e.micro);
    if (e.axis) args.add("axis", e.axis);
    if (e.entry < 0) return args;
    const Cost& c = walk.of(walk.entries[size_t(e.entry)]);
    const uint64_t bytes = c.kind == Kind::Copy || c.kind == Kind::Collective ? std::max(c.read, c.written)
                                                                              : c.read + c.written;
    if (c.peer >= 0) args.add("peer", c.peer);
    if (const auto dims = dims_of(c); !dims.empty()) args.add("dims", dims);
    if (c.flops > 0) args.raw("flops", fmt::format("{:.0f}", c.flops));
    if (bytes > 0) args.add("bytes", bytes);
    if (!(seconds > 0)) return args;
    if (c.flops > 0) args.raw("TFLOP/s", fmt::format("{:.4g}", 1e-12 * c.flops / seconds));
    else if (bytes > 0) args.raw("GB/s", fmt::format("{:.4g}", 1e-9 * double(bytes) / seconds));
    return args;
}

// Collectives in flight, each on the first lane of its axis and verb that is free.
namespace {
struct Flight { double begin, end; std::string lane; JsonObject args; };
struct Busy { std::string lane; std::vector<std::pair<int, double>> until; };    // numbers of lanes
}  // namespace

static void add_flights(ChromeProcess& p, std::vector<Flight> flights) {
    std::ranges::stable_sort(flights, {}, &Flight::begin);
    std::vector<Busy> all;
    for (const Flight& f : flights) {
        auto busy = std::find_if(all.begin(), all.end(), [&](const Busy& b) { return b.lane == f.lane; });
        if (busy == all.end()) busy = all.insert(busy, {f.lane, {}});
        auto free = std::find_if(busy->until.begin(), busy->until.end(),
                                 [&](const auto& lane) { return lane.second <= f.begin; });
        if (free == busy->until.end()) {
            const size_t before = busy->until.size();
            free = busy->until.insert(free, {int(p.lanes.size()), 0});
            p.lanes.push_back(before ? fmt::format("{} {}", f.lane, before + 1) : f.lane);
        }
        free->second = f.end;
        p.events.push_back({f.begin, f.end, free->first, "collective", f.lane, f.args});
    }
}

static std::vector<Flight> flights_of_host(const Walk& walk, const Timeline& t) {
    std::vector<Flight> flights;
    for (const Event& e : t.events)
        if (e.arrived > 0)
            flights.push_back({e.begin, e.arrived, name_of(e), args_of(walk, e, e.arrived - e.begin)});
    return flights;
}

static std::vector<Flight> flights_of_device(const Walk& walk, const Timeline& t,
                                             const TracedDevice& device) {
    std::vector<Flight> flights;
    for (const TracedDevice::Axis& axis : device.axes)
        for (const DeviceSpan& span : axis.spans) {
            const auto e = std::find_if(t.events.begin(), t.events.end(), [&](const Event& event) {
                return event.ticket == span.ticket && event.axis && !strcmp(event.axis, axis.name) &&
                       strcmp(event.name, verb_names[kSend]);
            });
            const bool known = e != t.events.end() && span.ticket != Timeline::kNotStarted;
            flights.push_back({device.origin + span.begin, device.origin + span.end,
                               known ? name_of(*e) : fmt::format("{}.all_reduce", axis.name),
                               known ? args_of(walk, *e, span.end - span.begin) : JsonObject()});
        }
    return flights;
}

// Host work stays off the lane of the device, as do waits of the host.
static bool is_on_device(const Event& e) {
    return e.begin_mark >= 0 && (e.axis || (e.entry >= 0 && e.kind != Timeline::Kind::Wait));
}

// The rank's own code between events of its thread: a tenth of a microsecond around most events, and far more
// where another process takes the core.
static void add_host_code(ChromeProcess& p, const Timeline& t, StepSpan span) {
    constexpr double kShortest = 0.5e-6;
    double reach = span.begin;
    const auto until = [&](double time) {
        if (time - reach >= kShortest) p.events.push_back({reach, time, 0, "op", "host code"});
    };
    for (const Event& e : t.events) {
        until(e.begin);
        reach = std::max(reach, e.end);
    }
    until(span.end);
}

ChromeProcess lanes_of(const Walk& walk, const Timeline& t, StepSpan span, const TracedDevice& device) {
    const bool on_gpu = !device.marks.empty();
    ChromeProcess p;
    p.lanes.push_back("host");
    if (on_gpu) p.lanes.push_back("GPU");
    for (const Event& e : t.events) {
        const bool starts = e.ticket != Timeline::kNotStarted;
        const double last = std::min(e.end, span.end);      // the recording ends after the step's `ms`
        const double seconds = on_gpu || starts ? 0 : last - e.begin;
        p.events.push_back({e.begin, last, 0, category_of(e.kind), name_of(e), args_of(walk, e, seconds)});
        if (!on_gpu || !is_on_device(e)) continue;
        const double begin = device.marks[size_t(e.begin_mark)], end = device.marks[size_t(e.end_mark)];
        p.events.push_back({device.origin + begin, device.origin + end, 1, category_of(e.kind), name_of(e),
                            args_of(walk, e, starts ? 0 : end - begin)});
    }
    add_host_code(p, t, span);
    add_flights(p, on_gpu ? flights_of_device(walk, t, device) : flights_of_host(walk, t));
    return p;
}

}  // namespace logs
