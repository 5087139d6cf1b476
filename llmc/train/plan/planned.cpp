#include "llmc/train/plan/planned.h"

#include <algorithm>

#include "llmc/base/context.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/run/model.h"

namespace PRECISION {

// On the device of this program, without times.
static Estimate planned_here(Config cfg, int ranks) {
    if (!cfg.run.threads) cfg.run.threads = std::max(1, cores() / ranks);
    const auto rank = described_mesh(cfg.parallel, ranks, 0);
    const size_t available = available_to_rank(rank->mesh);
    cfg.train.micro_batch = choose_micro_batch(cfg, rank->mesh, writes_texts(cfg), available);
    Estimate e = memory_estimate(cfg, ranks);
    e.fits = available == 0 || e.memory.sum() <= available;
    return e;
}

static Estimate planned_on(const Machine& machine, Config cfg, int ranks) {
    const Described gpu(kDescribedGpu);
    Config planned = cfg;
    planned.parallel.transport = TransportKind::Nccl;
    const auto rank = described_mesh(planned.parallel, ranks, 0);
    const size_t available = size_t(1e9 * machine.memory_gb);
    cfg.train.micro_batch = choose_micro_batch(planned, rank->mesh, writes_texts(cfg), available);
    return estimate(cfg, ranks, machine);
}

Planned planned(Config cfg) {
    std::optional<Machine> machine;
    if (cfg.cluster.named()) machine = machine_of(cfg.cluster);
    take_open_settings(cfg);
    const int ranks = ranks_to_plan(cfg);
    check_mesh(cfg, ranks);
    return {.estimate = machine ? planned_on(*machine, cfg, ranks) : planned_here(cfg, ranks),
            .machine = machine};
}

}  // namespace PRECISION
