// What the ranks of the shard axis keep a shard of instead of a whole copy (ZeRO: Rajbhandari et al. 2019,
// arXiv 1910.02054).
#pragma once

struct Sharding {
    bool weights, grads, state;      // grads: of blocks; state: of the optimizer
};

// REQUIRES: 0 <= zero <= 3. With one shard, weights and gradients count as whole; state stays marked as
// sharded and its shard is the whole.
constexpr Sharding sharding_of(int zero, int shards) {
    return {.weights = zero >= 3 && shards > 1, .grads = zero >= 2 && shards > 1, .state = zero >= 1};
}
