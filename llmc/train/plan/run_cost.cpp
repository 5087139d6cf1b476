#include "llmc/train/plan/run_cost.h"

inline namespace plans {

static constexpr double kDay = 86400;  // seconds

RunCost cost_of(const Estimate& e, const Machine& machine) {
    const double seconds = double(e.cfg.train.steps) * e.step.seconds, hours = seconds / 3600 * e.ranks;
    return {.seconds = seconds,
            .kwh = 1e-3 * machine.watts * hours,
            .dollars = machine.dollars_per_hour * hours};
}

bool keeps_limits(const RunCost& run, const ClusterConfig& limits) {
    return (limits.days == 0 || run.seconds <= kDay * limits.days) &&
           (limits.dollars == 0 || run.dollars <= limits.dollars);
}

}  // namespace plans
