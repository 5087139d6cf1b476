// The learning rate of a step: linear warmup, then the schedule.
//
//     warmup    lr (step + 1) / warmup
//     constant  lr
//     linear    from lr to lr * final_lr over the remaining steps
//     cosine    half a cosine between the same two (Loshchilov, Hutter 2016, arXiv 1608.03983)
//     wsd       lr, then linear to lr * final_lr in the last `decay` steps (Hu et al. 2024, arXiv 2404.06395)
#pragma once
#include <algorithm>
#include <cmath>

#include "llmc/base/config/config.h"

inline namespace step {

// Steps of wsd before its decay, in a run of `steps`.
inline int64_t steps_before_decay(const OptimizerConfig& o, int64_t steps) {
    const int64_t decay = o.decay ? o.decay : std::max<int64_t>(1, steps / 5);
    return std::max(o.warmup, steps - decay);
}

// step: optimizer steps finished before this one, 0 .. steps - 1
inline double learning_rate(const OptimizerConfig& o, int64_t steps, int64_t step) {
    if (step < o.warmup) return o.lr * double(step + 1) / double(o.warmup);
    const double low = o.lr * o.final_lr;
    // progress of a decay whose first step is already below lr and whose last step is at `low`
    const auto progress = [&](int64_t begin) {
        return std::clamp(double(step + 1 - begin) / double(std::max<int64_t>(1, steps - begin)), 0.0, 1.0);
    };
    if (o.schedule == LrSchedule::Linear) return o.lr + (low - o.lr) * progress(o.warmup);
    if (o.schedule == LrSchedule::Cosine)
        return low + (o.lr - low) * 0.5 * (1 + std::cos(M_PI * progress(o.warmup)));
    if (o.schedule == LrSchedule::Wsd) return o.lr + (low - o.lr) * progress(steps_before_decay(o, steps));
    return o.lr;
}

}  // namespace step
