// Models over data-parallel ranks that are threads, for tests of ZeRO.
#pragma once
#include "llmc/comm/launch/launch.h"
#include "test/tiny.h"

namespace PRECISION {

inline constexpr int kZeroSteps = 3, kZeroRows = 12, T = 13;

// Sizes that no number of ranks divides: 5 blocks, C = 24, V = 67.
inline Config zero_config(int ranks, int zero, int micro_batch = 2) {
    Config cfg;
    cfg.model = {.layers = 5, .heads = 3, .channels = 24, .context = T, .vocab = 67, .init = "random"};
    cfg.train = {.steps = 100, .batch_tokens = kZeroRows * T, .micro_batch = micro_batch, .max_skips = 0};
    cfg.optimizer.lr = 1e-2, cfg.optimizer.warmup = 2;
    cfg.run.threads = 1;
    cfg.parallel.ranks = ranks, cfg.parallel.zero = zero;
    cfg.checkpoint.async = false;
    return cfg;
}

struct Outcome {
    std::vector<double> losses, norms;
    std::vector<real> weights;
    bool operator==(const Outcome& o) const {
        return losses == o.losses && norms == o.norms && weights.size() == o.weights.size() &&
               memcmp(weights.data(), o.weights.data(), weights.size() * sizeof(real)) == 0;
    }
};

inline std::vector<real> all_weights(const Tiny& t) {
    std::vector<real> all;
    for (const Tensor& tensor : whole_tensors(t.d)) {
        const auto values = t.whole(tensor);
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

inline Outcome train(const Config& cfg, const Mesh& mesh) {
    Tiny t(cfg, false, mesh);
    t.shake(0.1);
    const Trace trace = train_steps(t, kZeroSteps);
    return {trace.losses, trace.norms, all_weights(t)};
}

// What rank 0 sees; that the others see the same is checked.
inline Outcome run(const Config& cfg, int delay_us = 0) {
    std::vector<Outcome> seen(size_t(cfg.parallel.ranks));
    if (cfg.parallel.ranks == 1) return train(cfg, Mesh());
    run_threads(cfg, [&](Config c, const Mesh& mesh) {
        for (const Axis* axis : {&mesh.shard, &mesh.replica, &mesh.tp, &mesh.world})
            if (axis->group) axis->group->most_delay_us = delay_us;
        seen[size_t(mesh.rank)] = train(c, mesh);
        return 0;
    });
    for (const Outcome& o : seen) EXPECT(o == seen[0], "ranks disagree");
    return seen[0];
}

// The gradient of a key's bias is zero but for rounding, which Adam makes an update of up to 1e-9 of lr.
inline void expect_near(const char* what, const Outcome& o, const Outcome& reference, double tolerance) {
    const double loss = test::largest_difference(o.losses, reference.losses),
                 norm = test::largest_difference(o.norms, reference.norms),
                 weight = test::largest_difference(o.weights, reference.weights, 1e-2);
    EXPECT(loss <= tolerance && norm <= tolerance && weight <= 1e-9,
           "%s: losses %.2g apart, norms %.2g, weights %.2g", what, loss, norm, weight);
}

}  // namespace PRECISION
