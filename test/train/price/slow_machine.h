// A machine whose prices are round numbers, and costs to price.
#pragma once
#include "llmc/train/price/step_time.h"
#include "test/test.h"

// A machine on which 1e9 bytes take a second to copy, and to gather over 2 ranks.
inline Prices slow_machine() {
    Prices p;
    p.machine = {.gpu = "slow",
                 .about = "",
                 .sources = "",
                 .memory_gb = 1,
                 .bf16_tflops = 1,
                 .fp32_tflops = 1,
                 .reached = 1,
                 .attention = {.any = 1},
                 .copy_gbs = 1,
                 .host_gbs = 1,
                 .launch_us = 0,
                 .units = 1,
                 .gpus_per_node = 8,
                 .node_gbs = 0.5,
                 .node_us = 0,
                 .network_gbs = 0.1,
                 .network_us = 0,
                 .links = 1};
    p.mesh = {.dp = 2, .shard = 2};
    return p;
}

inline Cost op(uint64_t bytes) { return {.name = "op", .kind = Kind::Memory, .read = bytes}; }
inline Cost gather(uint64_t bytes) {
    return {
        .name = "all_gather", .kind = Kind::Collective, .read = bytes / 2, .written = bytes, .axis = "shard"};
}
inline Cost await_gather() { return {.name = "all_gather", .kind = Kind::Wait, .axis = "shard"}; }

// Of a rank's walk with these costs, all of one action.
inline SecondsByKind seconds_of_action(const std::vector<Cost>& costs,
                                       const Prices& prices = slow_machine()) {
    Walk walk({.backend = Target::Cuda, .threads = 1});
    walk.action = 0;
    for (const Cost& c : costs) walk.record(c);
    const std::vector<Action> forward = {{.kind = Action::Forward, .chunk = 0, .micro = 0}};
    return seconds_alone(stage_times(prices, walk, forward, 1).events[0]);
}
