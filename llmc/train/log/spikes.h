// Spikes of loss and gradient norm: a z-score over 6 against the last 200 steps, and the tensor whose
// gradient norm moved first.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmc/train/log/step_meter.h"

inline namespace logs {

struct Spike {
    int64_t step = 0;
    const char* of = "";            // "loss" or "norm"
    double value = 0, z = 0;
    struct Moved { std::string name; double z; int64_t step; };
    std::optional<Moved> first = {};    // tensor with the earliest score over the limit; the largest on ties
    bool knows_tensors = false;     // there are scores of tensors
};

// "norm 14.2 is 8.1 standard deviations above its last 200 steps; first moved: h.3.fcw (z 9.7 at step 1230)"
std::string text_of(const Spike& s);

struct Spikes {
    static constexpr double kLimit = 6;
    // Steps: how long a tensor's move counts as a possible cause, and how many quiet steps end a spike.
    static constexpr int64_t kRecent = 10;

    // names: of the tensors; none without log.health. windows: of the tensors, kept in checkpoints.
    Spikes(const std::vector<std::string>& names, std::map<std::string, Trailing>& windows);

    // norms: of each tensor's gradient. Returns a spike once, in the spike's first step.
    std::optional<Spike> see(const StepFigures& r, std::span<const double> norms);

private:
    // z: at moved_at, the step of the last move.
    struct Followed { std::string name; Trailing* window; std::optional<double> z; int64_t moved_at = -1; };
    std::vector<Followed> tensors_;
    int64_t last_ = -1;                         // step with the last score of loss or norm over the limit

    std::optional<Spike::Moved> first_moved(int64_t step) const;
};

}  // namespace logs
