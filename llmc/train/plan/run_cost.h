// Time, energy and price of all steps of a plan, and the limits that a user sets for them.
#pragma once
#include "llmc/train/plan/estimate.h"

inline namespace plans {

// 0 where the machine states neither watts nor a price.
struct RunCost {
    double seconds, kwh, dollars;
};
RunCost cost_of(const Estimate& e, const Machine& machine);

// cluster.days and cluster.dollars; 0: no limit.
bool keeps_limits(const RunCost& run, const ClusterConfig& limits);

}  // namespace plans
