#include "llmc/train/run/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "llmc/base/console.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/clocks.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/texts.h"

namespace PRECISION::inline runs {

static constexpr Timeline::Ranges kRanges = {.push = ops::push_range, .pop = ops::pop_range};

StepTrace::StepTrace(const Config& c, const Model& m) : cfg(c), model(m), profiled(ops::has_profiler()) {}

bool StepTrace::due(int64_t s) const {
    const std::vector<int64_t>& steps = cfg.log.trace;
    return std::find(steps.begin(), steps.end(), s) != steps.end();
}

// Groups with collectives on the device.
template <class F> static void for_each_on_device(const Mesh& mesh, F&& f) {
    for (int a = 0; a < kGroups; a++)
        if (Group* const g = (mesh.*group_rows[a].axis).group; g && g->transport->look_at_times) f(*g);
}

StepTrace::~StepTrace() {
    end();
    for_each_on_device(model.mesh, [](Group& g) { g.spans = nullptr; });
}

// From here on awaited collectives are kept: log.comm may look at the times, too.
void StepTrace::keep_collectives() {
    device = {};
    device.axes.reserve(kGroups);                 // the groups point there
    for_each_on_device(model.mesh, [&](Group& g) {
        g.timed = true;
        g.transport->look_at_times(g);          // those of earlier steps
        g.spans = &device.axes.emplace_back(TracedDevice::Axis{.name = g.name, .spans = {}}).spans;
    });
}

// Mark 0 ties the device's clock to the host's: the device is idle, and reaches the mark at once.
void StepTrace::begin_on_device(size_t marks) {
    keep_collectives();
    ops::make_marks(int(marks));
    ops::set_mark(0);
    ops::read_marks(1);
    device.origin = seconds_now();
    running->timeline.mark = ops::set_mark;
    running->timeline.marks = 1;
}

// A step has as many records per micro-batch as the few micro-batches of model.step, at most.
void StepTrace::begin(int64_t next) {
    end();
    const bool records = due(next);
    if (!records && !profiled) return;
    const size_t expected = records ? model.step.entries.size() * size_t(model.stage.shape.micros) : 0;
    step = next;
    running = std::make_unique<Recording>(Walk(ops::target()));
    running->walk.computes = true;
    running->walk.timeline = &running->timeline;
    running->walk.entries.reserve(expected);
    running->timeline.events.reserve(2 * expected);
    running->timeline.records = records;
    if (profiled) {
        running->timeline.ranges = &kRanges;
        ops::push_range(fmt::format("step {}", step).c_str());
    }
    if (records && !ops::reached_by_host()) begin_on_device(2 * expected);
    outer = std::exchange(context.walk, &running->walk);
}

void StepTrace::end(StepSpan span) {
    if (!running) return;
    running->span = span;
    running->timeline.finish();
    context.walk = outer;
    if (running->timeline.ranges) ops::pop_range();
    if (running->timeline.records) complete = std::move(running);
    running.reset();
}

// "rank 5: dp 1, pp 0, tp 1"
static std::string name_of(const MeshShape& shape, int rank) {
    std::string place;
    for (const MeshAxis a : shown_axes(shape))
        place += fmt::format(", {} {}", axis_rows[a].name, index_on(shape, a, rank));
    return fmt::format("rank {}", rank) + (ranks_of(shape) > 1 ? ":" + place.substr(1) : "");
}

std::string StepTrace::lines() {
    const Mesh& mesh = model.mesh;
    const Timeline& timeline = complete->timeline;
    if (timeline.mark) {
        device.marks = ops::read_marks(timeline.marks);
        for_each_on_device(mesh, [&](Group& g) {
            g.transport->look_at_times(g);
            g.spans = nullptr;
            g.timed = cfg.log.comm;
        });
    }
    ChromeProcess process = lanes_of(complete->walk, timeline, complete->span, device);
    process.name = name_of(mesh_shape(cfg.parallel, mesh.world.size), mesh.rank);
    const ClockOffset clock = clock_offset(mesh.world);
    for (ChromeEvent& e : process.events) {
        e.begin -= clock.offset;
        e.end -= clock.offset;
    }
    const double first = -largest_over(mesh.world, clock.offset - complete->span.begin);
    return chrome_lines(mesh.rank, std::move(process), first);
}

void StepTrace::write() {
    if (!complete) return;
    const std::vector<std::string> all = gather_texts(model.mesh.world, lines());
    complete.reset();
    if (model.mesh.rank != 0) return;
    const std::string path = fmt::format("{}/trace_step_{}.json", cfg.run.dir, step);
    const std::string reason = try_replace_file(path, chrome_trace(all));
    if (reason.empty()) {
        print_event("trace", fmt::format("step {} in {}", step, for_terminal(path)));
    } else if (!failed) {
        failed = true;
        warning("log.trace: cannot write {}: {}. Training goes on.", path, reason);
    }
}

}  // namespace PRECISION::runs
