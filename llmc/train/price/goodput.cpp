#include "llmc/train/price/goodput.h"

#include <algorithm>
#include <cmath>

inline namespace price {

// Seconds of a checkpoint: until the state is copied to the host, and until it is on the disk.
struct CheckpointTimes {
    double halt, write;
};

// All ranks of a node share its rate to the disk. Only with checkpoint.async training goes on meanwhile; with
// offloaded state, until the next update.
static CheckpointTimes checkpoint_times(const LongRun& run, const Machine& machine) {
    const double bytes = double(run.saved_bytes), copied = bytes - double(run.offloaded_bytes);
    const int of_node = std::min(run.ranks, machine.gpus_per_node);
    const double copy = copied / (1e9 * machine.host_gbs), write = bytes * of_node / (1e9 * machine.disk_gbs);
    const double waits = run.offloaded_bytes ? std::max(0.0, write - run.step_seconds) : 0;
    return {.halt = copy + (run.async ? waits : write), .write = copy + write};
}

static double between_failures(const LongRun& run, const Machine& machine) {
    return 3600 * machine.failure_hours / run.ranks;
}

// x with a share p of a normal distribution below.
static double normal_quantile(double p) {
    double below = -10, above = 10;
    while (above - below > 1e-9) {
        const double x = (below + above) / 2;
        (std::erfc(-x / std::sqrt(2.0)) / 2 < p ? below : above) = x;
    }
    return below;
}

// Of n independent normal numbers: how far the largest is above the mean, in standard deviations.
static double largest_of(int n) { return n == 1 ? 0 : normal_quantile((n - 0.375) / (n + 0.25)); }

Goodput goodput(const LongRun& run, const Machine& machine, int64_t every) {
    const CheckpointTimes checkpoint = checkpoint_times(run, machine);
    const int64_t interval = every > 0 ? every : std::max<int64_t>(1, run.steps);
    const double seconds = double(interval) * run.step_seconds;
    Goodput g = {.between = between_failures(run, machine), .write = checkpoint.write, .every = every};
    g.checkpoints = checkpoint.halt / seconds;
    g.restarts = machine.restart_seconds / g.between;
    g.repeated = (seconds / 2 + checkpoint.write) / g.between;
    g.stragglers = machine.spread * largest_of(run.ranks);
    return g;
}

int64_t best_checkpoint_every(const LongRun& run, const Machine& machine) {
    const CheckpointTimes checkpoint = checkpoint_times(run, machine);
    const double young = std::sqrt(2 * checkpoint.halt * between_failures(run, machine));
    const double steps = std::max(young, checkpoint.write) / run.step_seconds;
    return int64_t(std::clamp(std::round(steps), 1.0, double(std::max<int64_t>(1, run.steps))));
}

}  // namespace price
