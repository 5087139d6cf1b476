// Three words: true where each rank of the shard axis keeps one shard, false where each rank keeps a whole
// copy (ZeRO: Rajbhandari et al. 2019, arXiv 1910.02054).
#pragma once
#include <iterator>

inline namespace config {

struct Sharding {
    bool weights, grads, state;      // grads: of blocks; state: of the optimizer
};

// The ZeRO stages by their number in parallel.zero.
inline constexpr Sharding kZeroStages[] = {{.weights = false, .grads = false, .state = false},
                                           {.weights = false, .grads = false, .state = true},
                                           {.weights = false, .grads = true, .state = true},
                                           {.weights = true, .grads = true, .state = true}};
inline constexpr const char* kZeroHelp =
    "shard over data-parallel ranks: 1 optimizer state, 2 and gradients, 3 and weights";

// The words of ZeRO stage `zero` over `shards` shards. One shard: weights and gradients count as whole; the
// state still counts as sharded, and its one shard is the whole state. on_host: weights lie in the host's
// memory and come to the device for each use. They are shards there where the state is sharded.
constexpr Sharding sharding_of(int zero, int shards, bool on_host = false) {
    const Sharding s = kZeroStages[zero];
    return {.weights = (s.weights || (on_host && s.state)) && shards > 1, .grads = s.grads && shards > 1,
            .state = s.state};
}

}  // namespace config
