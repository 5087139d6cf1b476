// AdamW over the flat buffers: the norm of all gradients, then one update of all tensors.
#pragma once
#include "llmc/base/config.h"
#include "llmc/train/zero.h"

namespace PRECISION {

struct Optimizer {
    Zero& zero;
    OptimizerConfig cfg;
    uint64_t seed;
    std::vector<ops::AdamwTensor> tensors;
    real* sums;                    // of squares, per block of the gradients
    ops::GradientState* state;

    Optimizer(const Config& cfg, Zero& zero);
    Optimizer(const Optimizer&) = delete;
    void add_to(Arena& arena);

    struct Result { double norm; bool finite; };

    // The norm before clipping; the scale and whether all is finite stay with the gradients, for update().
    // loss: the step's.
    Result clip_gradients(const double* loss);

    // A step that is not finite leaves everything as it is. step: finished before this one.
    void update(double lr, int64_t step);
};

}  // namespace PRECISION
