// AdamW over the flat buffers: the global gradient norm, then an update of this rank's elements.
#pragma once
#include "llmc/base/config/config.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

struct Optimizer {
    Zero& zero;
    OptimizerConfig cfg;
    uint64_t seed;
    real* sums;                    // of squares, per block of the gradients; as large on all ranks of a stage
    ops::GradientState* state;

    static constexpr size_t kChunk = 1 << 20;      // elements of offloaded state per update

    // What AdamW keeps of each weight.
    static std::vector<StateSlot> slots();

    Optimizer(const Config& cfg, Zero& zero);
    Optimizer(const Optimizer&) = delete;
    void add_to(Arena& arena);

    // The host never waits here: results stay on the device.
    // *out = the sum of squares of the gradients in this rank's shards, each parameter counted on one rank.
    void sum_squares(double* out);
    // Sets *state for update(): the norm before clipping, the scale, and whether the step is finite. squares:
    // over the job. loss: a multiple of the step's.
    void clip(const double* squares, const double* loss);

    // Leaves weights and state unchanged if the step is not finite. step: finished steps. Collective.
    void update(double lr, int64_t step);

private:
    // A slice of a bucket, updated at once: this rank's elements, or a chunk of these.
    struct Slice {
        int bucket;
        size_t from, count;                        // of the owned elements
        std::vector<ops::AdamwTensor> tensors;     // inside the chunk
    };
    using State = std::vector<real*>;              // of each slot of zero.state

    bool counts(const Tensor& t, int tp) const;
    Slice make_slice(int bucket, size_t from, size_t count) const;
    State state_of(const Slice& t) const;
    void load(const Slice& t, const State& to) const;          // offloaded state, to the device
    void store(const Slice& t, const State& from) const;
    void update(const Slice& t, const State& s, ops::Adamw adamw) const;

    std::vector<Zero::Run> counted;
    std::vector<Slice> slices;
    State chunks[2];                               // offloaded state on the device
};

}  // namespace PRECISION
