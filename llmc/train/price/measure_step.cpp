// Measures steps of a reduced model, op by op, on ranks that are threads of this process.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/votes.h"
#include "llmc/ops/timeline.h"
#include "llmc/train/price/measured_step.h"
#include "llmc/train/price/random_tokens.h"
#include "llmc/train/run/kernel_choices.h"
#include "llmc/train/run/peaks.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/save/state_source.h"

namespace PRECISION::inline price {

static constexpr int kMost = 15;                // steps
static constexpr double kSeconds = 8;           // of steps

// A model with all ops of cfg's and a step with all actions; what runs beside the steps is off.
static Config reduced(const Config& cfg, int ranks) {
    Config c = cfg;
    ParallelConfig& p = c.parallel;
    p.ranks = ranks;
    p.transport = TransportKind::Threads;
    const int dp = mesh_shape(p, ranks).dp;
    c.model.layers = measured_layers(cfg);
    c.model.init = "random";
    c.model.depth = 0;
    const int64_t tokens = int64_t(cfg.model.context) * cfg.train.micro_batch * dp;
    const PipelineShape shape = {
        .stages = p.pp, .chunks = p.virtual_stages,
        .micros = int(micros_of_step(cfg, dp, cfg.train.micro_batch))};
    c.train = {.steps = 1000,
               .batch_tokens = tokens * walked_micros(shape),
               .micro_batch = cfg.train.micro_batch,
               .max_skips = 0};
    c.eval = {};
    c.eval.every = 0;
    c.sample.every = 0;
    c.checkpoint.every = 0;
    c.log = {};
    return c;
}

// A step of a rank, recorded.
struct RecordedStep {
    Walk walk;
    std::vector<double> begins;  // of each entry and of the end, in seconds by one clock
};

static RecordedStep record(Model& model, Loader& data, int64_t step) {
    Timeline timeline;
    const bool marked = !ops::reached_by_host();
    if (marked) {
        ops::make_marks(int(4 * model.step.entries.size() * size_t(model.stage.shape.micros)));
        ops::set_mark(0);
        ops::read_marks(1);
        timeline.mark = ops::set_mark;
        timeline.marks = 1;
    }
    const auto run = [&] {
        context.walk->timeline = &timeline;
        model.pipeline.run(data);
        enqueue_update(model, 1e-4, step);
        model.statistics->read();
        timeline.finish();
    };
    RecordedStep recorded = {.walk = walk_of(ops::target(), run, true), .begins = {}};
    const std::vector<double> marks = marked ? ops::read_marks(timeline.marks) : std::vector<double>();
    double end = 0;
    for (const Timeline::Event& e : timeline.events) {
        end = std::max(end, marked ? marks[size_t(e.end_mark)] : e.end);
        if (e.entry >= 0) recorded.begins.push_back(marked ? marks[size_t(e.begin_mark)] : e.begin);
    }
    recorded.begins.push_back(end);
    return recorded;
}

// Each entry lasts until the next begins: nothing of a step is between them.
static std::vector<MeasuredOp> ops_of(const RecordedStep& step) {
    const Walk& walk = step.walk;
    std::vector<MeasuredOp> all;
    for (const Cost& cost : walk.costs) {
        MeasuredOp op = {.name = cost.name,
                         .axis = cost.axis ? cost.axis : "",
                         .kind = cost.kind,
                         .sizes = cost.sizes(),
                         .flops = cost.flops,
                         .read = cost.read,
                         .written = cost.written};
        all.push_back(std::move(op));
    }
    for (size_t i = 0; i < walk.entries.size(); i++) {
        MeasuredOp& op = all[size_t(walk.entries[i].cost)];
        op.calls++;
        op.seconds += step.begins[i + 1] - step.begins[i];
    }
    for (MeasuredOp& op : all) op.seconds /= op.calls;
    return all;
}

// Of steps by the time of their slowest rank. All ranks together.
static RecordedStep median_step(Model& model, Loader& data) {
    const Axis& world = model.mesh.world;
    std::vector<std::pair<double, size_t>> times;
    std::vector<RecordedStep> steps;
    const auto run = [&] {
        world.barrier();
        const double begin = seconds_now();
        RecordedStep step = record(model, data, int64_t(steps.size()));
        const double took = largest_over(world, seconds_now() - begin);
        steps.push_back(std::move(step));
        return took;
    };
    run();  // touches memory for the first time
    const double first = run();
    times.emplace_back(first, 1);
    const int more = int(std::min<double>(kSeconds / first, kMost));
    std::optional<Progress> progress;
    if (world.index == 0) progress.emplace("measure this machine", "steps", uint64_t(more));
    for (int done = 1; done <= more; done++) {
        const double took = run();
        if (progress) progress->update(uint64_t(done));
        times.emplace_back(took, steps.size() - 1);
    }
    std::sort(times.begin(), times.end());
    return std::move(steps[times[(times.size() - 1) / 2].second]);
}

MeasuredStep measure_step(const Config& cfg, int ranks) {
    const Config few = reduced(cfg, ranks);
    MeasuredStep measured = {.date = today(), .layers = few.model.layers, .ops = {}};
    std::mutex mutex;
    const Dataset tokens = random_tokens(few.model, size_t(4 * few.train.batch_tokens) + 1);
    const auto body = [&](const Config& c, const Mesh& mesh) {
        Model model(c, mesh, c.train.micro_batch, false);
        const double needed = largest_over(mesh.world, double(model.bytes()));
        const size_t available = available_to_rank(mesh, c.memory);
        CHECK_INPUT(
            available == 0 || needed <= double(available),
            "cluster.gpu = auto: measuring {} of {} layers needs {} on a rank, {} are available: make "
            "train.micro_batch smaller, or name a machine of the table",
            c.model.layers, cfg.model.layers, human_bytes(needed), human_bytes(double(available)));
        const double tflops = peak_tflops(mesh.world, c.log) / mesh.world.size;
        warm_up(c, model);
        choose_kernels(c, model);
        model.allocate();
        restore(model.shards, random_weights(model.shards.d, 1));
        Loader data(tokens, model.pipeline.deal(mesh.dp.index), 0);
        const RecordedStep step = median_step(model, data);
        const std::lock_guard lock(mutex);
        merge(measured.ops, ops_of(step), c.parallel.pp > 1);
        measured.seconds = std::max(measured.seconds, step.begins.back() - step.begins.front());
        measured.tflops = tflops;
        return kExitDone;
    };
    // Errors of a rank end the others, and then the program. Ranks print no table of themselves.
    struct Throwing {
        const bool before = std::exchange(context.throw_on_fatal, true);
        ~Throwing() { context.throw_on_fatal = before; }
    };
    std::optional<Fatal> failed;
    try {
        const Throwing errors;
        run_threads(few, body);
    } catch (const Fatal& e) { failed = e; }
    if (failed) fatal(failed->code, __FILE__, __LINE__, "{}", failed->what());
    return measured;
}

}  // namespace PRECISION::price
