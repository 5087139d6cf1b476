// A plan: memory and time of a training step of one config on one mesh.
#pragma once
#include <string>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/numbers/each_precision.h"
#include "llmc/train/price/goodput.h"
#include "llmc/train/price/step_time.h"

inline namespace plans {

// Bytes of a rank's device, by purpose.
struct BytesByPurpose {
    size_t weights = 0, gradients = 0, optimizer = 0, activations = 0, other = 0;

    size_t sum() const { return weights + gradients + optimizer + activations + other; }
};

struct Estimate {
    Config cfg;  // resolved
    MeshShape mesh;
    int ranks = 1;
    int64_t params = 0;
    BytesByPurpose memory;  // of the fullest rank
    std::vector<size_t> memory_of_stages = {};  // bytes of a rank of each pipeline stage
    bool fits = true;
    StepTime step;
    double mfu = 0;  // share of the peak rate
    Goodput goodput = {};       // with the interval checkpoint.every
    Goodput best_goodput = {};  // with the interval that costs least

    double tokens_per_second() const { return double(cfg.train.batch_tokens) / step.seconds; }
    double bubble() const { return step.bubble / step.seconds; }            // shares of the step's time
    double exposed() const { return step.by_kind.exposed / step.seconds; }
};

// The device of plans for GPUs, on any build.
inline constexpr Target kDescribedGpu = {.backend = Target::Cuda, .threads = 1};
inline Target described_gpu(const Machine& machine) {
    return {.backend = Target::Cuda, .threads = 1, .any_size = machine.any_size > 0,
            .processors = machine.units};
}
// Plans of this thread are for `device` until the end of the scope.
struct Described {
    const Target* const before = context.target;
    explicit Described(const Target& device) { context.target = &device; }
    ~Described() { context.target = before; }
    Described(const Described&) = delete;
};

// cfg with NCCL, the transport between GPUs.
inline Config over_nccl(Config cfg) {
    cfg.parallel.transport = TransportKind::Nccl;
    return cfg;
}

// Whether a run of cfg writes texts, and so holds a decoder.
inline bool writes_texts(const Config& cfg) {
    return cfg.sample.every > 0 && !cfg.data.tokenizer.empty();
}

// REQUIRES: the mesh is valid for cfg and ranks (check_mesh); model.vocab and train.micro_batch are resolved.
using EstimateFunction = Estimate(const Config& cfg, int ranks, const Machine& machine);
// The same on ops::target(), the device of this thread, with the times of a measured step.
using MeasuredFunction = Estimate(const Config& cfg, int ranks, const Machine& machine,
                                  const MeasuredStep& measured);
// The memory alone, on ops::target().
using MemoryFunction = Estimate(const Config& cfg, int ranks);
// The drawing of the step that estimate() prices.
using DrawFunction = DrawnStep(const Config& cfg, int ranks, const Machine& machine);

}  // namespace plans

IN_EACH_PRECISION(plans, EstimateFunction estimate; MeasuredFunction measured_estimate;
                  MemoryFunction memory_estimate; DrawFunction drawn_step;)
