#include "llmc/train/run/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "llmc/base/console.h"
#include "llmc/base/files.h"
#include "llmc/base/json.h"
#include "llmc/base/progress.h"
#include "llmc/comm/clocks.h"
#include "llmc/comm/mesh.h"
#include "llmc/comm/texts.h"
#include "llmc/train/run/trace_lanes.h"

namespace PRECISION {

static constexpr Timeline::Ranges kRanges = {.push = ops::push_range, .pop = ops::pop_range};

StepTrace::StepTrace(const Config& c, const Model& m) : cfg(c), model(m), profiled(ops::has_profiler()) {}

bool StepTrace::due(int64_t s) const {
    const std::vector<int64_t>& steps = cfg.log.trace;
    return std::find(steps.begin(), steps.end(), s) != steps.end();
}

// Collectives on the device, awaited since the last call, go to `out` where there is one.
static void look_at_times(const Mesh& mesh, TracedDevice* out) {
    for (int a = 0; a < kAxes; a++) {
        Group* const group = (mesh.*mesh_axes[a]).group;
        if (!group || !group->transport->look_at_times) continue;
        TracedDevice::Axis axis = {.name = group->name, .spans = {}};
        group->spans = out ? &axis.spans : nullptr;
        group->timed = true;
        group->transport->look_at_times(*group);
        group->spans = nullptr;
        if (out) out->axes.push_back(std::move(axis));
    }
}

// Mark 0 ties the device's clock to the host's: the device is idle, and reaches the mark at once.
void StepTrace::begin_on_device(size_t marks) {
    look_at_times(model.mesh, nullptr);
    ops::make_marks(int(marks));
    ops::set_mark(0);
    ops::read_marks(1);
    first_mark = seconds_now();
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

void StepTrace::end() {
    if (!running) return;
    running->timeline.finish();
    context.walk = outer;
    if (running->timeline.ranges) ops::pop_range();
    if (running->timeline.records) complete = std::move(running);
    running.reset();
}

// "rank 5: dp 1, pp 0, tp 1"
static std::string name_of(const Mesh& mesh) {
    std::string name = fmt::format("rank {}", mesh.rank);
    if (mesh.world.size == 1) return name;
    return name + fmt::format(": dp {}, pp {}, tp {}", mesh.dp.index, mesh.pp.index, mesh.tp.index);
}

std::string StepTrace::lines() const {
    const Mesh& mesh = model.mesh;
    TracedDevice device;
    const Timeline& timeline = complete->timeline;
    if (timeline.mark) {
        device.origin = first_mark;
        device.marks = ops::read_marks(timeline.marks);
        look_at_times(mesh, &device);
    }
    ChromeProcess process = lanes_of(complete->walk, timeline, device);
    process.name = name_of(mesh);
    const ClockOffset clock = clock_offset(mesh.world);
    for (ChromeEvent& e : process.events) {
        e.begin -= clock.offset;
        e.end -= clock.offset;
    }
    double first = timeline.events.empty() ? 0 : timeline.events[0].begin - clock.offset;
    first = -largest_over(mesh.world, -first);
    return chrome_lines(mesh.rank, std::move(process), first);
}

void StepTrace::write() {
    if (!complete) return;
    const std::vector<std::string> all = gather_texts(model.mesh.world, lines());
    complete.reset();
    if (model.mesh.rank != 0) return;
    const std::string path = fmt::format("{}/trace_step_{}.json", cfg.run.dir, step);
    if (try_replace_file(path, chrome_trace(all))) {
        printf("%15s  step %lld in %s\n", "trace", (long long)step, for_terminal(path).c_str());
        fflush(stdout);
    } else if (!failed) {
        failed = true;
        warning("log.trace: cannot write {}: {}. Training goes on.", path, strerror(errno));
    }
}

}  // namespace PRECISION
