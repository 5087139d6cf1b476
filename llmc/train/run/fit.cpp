// Micro-batches that fit in memory, on every rank of a mesh.
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/run/distinct_stages.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/comm/votes.h"

namespace PRECISION::inline runs {

// Threads of a described mesh share this host; processes may have a host each.
size_t available_to_rank(const Mesh& mesh, const MemoryConfig& limit) {
    const size_t all = ops::device_available(), here = all / size_t(context.host_ranks);
    if (!is_described(mesh)) return limit.limited(size_t(-largest_over(mesh.world, -double(here))));
    const bool threads = mesh.world.group->transport->name == std::string("threads");
    return limit.limited(threads ? all / size_t(mesh.world.size) : here);
}

size_t largest_plan(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates) {
    if (is_described(mesh)) {           // ranks differ only between pipeline stages
        size_t most = 0;
        for (const int stage : distinct_stages(cfg).stages) {
            const auto other = described_stage(cfg.parallel, mesh.world.size, stage);
            most = std::max(most, Model(cfg, other->mesh, micro_batch, generates).bytes());
        }
        return most;
    }
    return size_t(largest_over(mesh.world, double(Model(cfg, mesh, micro_batch, generates).bytes())));
}

// Where the ranks have unequal shares: a rank computes an eighth more rows than the largest share.
static bool wastes(const Config& cfg, int dp, int B) {
    return 8 * B * micros_of_step(cfg, dp, B) > 9 * rows_of_step(cfg, dp);
}

// The largest micro-batch that divides a step, wastes little if any does, and whose plan takes at most `room`
// bytes; 0: none does.
static int largest_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, double room) {
    const int rows = int(rows_of_step(cfg, mesh.dp.size)), dp = mesh.dp.size;
    for (const bool any : {false, true})
        for (int B = rows; B > 0; B--)
            if (batch_divides(cfg, dp, B) && (any || !wastes(cfg, dp, B)) &&
                double(largest_plan(cfg, mesh, B, generates)) <= room)
                return B;
    return 0;
}

int choose_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available) {
    if (cfg.train.micro_batch) return cfg.train.micro_batch;
    return std::max(1, largest_micro_batch(cfg, mesh, generates, 0.9 * double(available)));
}

int fitting_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available, int saved) {
    const auto plan = [&](const Config& c, int B) { return largest_plan(c, mesh, B, generates); };
    const auto shown = [](size_t bytes) { return human_bytes(double(bytes)); };
    const int dp = mesh.dp.size;
    if (!cfg.train.micro_batch && saved && batch_divides(cfg, dp, saved) && !wastes(cfg, dp, saved) &&
        (available == 0 || plan(cfg, saved) <= available))
        return saved;
    const int B = choose_micro_batch(cfg, mesh, generates, available);
    if (available == 0 || plan(cfg, B) <= available) return B;      // 0: the system does not tell

    const std::string what =
        fmt::format("no memory for the tensors: train.micro_batch = {} needs {}{}, {} are available{}.", B,
                    shown(plan(cfg, B)), mesh.world.size > 1 ? " on a rank" : "", shown(available),
                    cfg.memory.device_gb > 0 ? " by memory.device_gb" : "");
    const int fits = largest_micro_batch(cfg, mesh, generates, double(available));
    CHECK_INPUT(fits == 0, "{}\n       The largest that fits is train.micro_batch = {}, with {}",
                what, fits, shown(plan(cfg, fits)));
    const Config block = with_recompute(cfg, Recompute::Block);
    const size_t least = plan(block, 1);
    const char* const schedule = block.parallel.schedule == cfg.parallel.schedule
                                     ? ""
                                     : " and parallel.schedule=1f1b";
    CHECK_INPUT(least > available, "{}\n       No micro-batch fits as it is; with memory.recompute=block{} "
                "train.micro_batch=1 does, with {}", what, schedule, shown(least));
    fatal(
        kExitConfig, __FILE__, __LINE__,
        "{}\n       No micro-batch fits: with memory.recompute=block{} and "
        "one sequence at once {} are needed.\n       Make the model or model.context smaller, spread it over "
        "more ranks (parallel.zero, tp, pp), or stop what else holds memory (--plan prints what needs how "
        "much)",
        what, schedule, shown(least));
}

}  // namespace PRECISION::runs
