// The optimizer: the global gradient norm, then an update of this rank's elements, by AdamW over the flat
// buffers, or of matrices that Muon has by muon_step.h.
#pragma once
#include <optional>

#include "llmc/base/config/config.h"
#include "llmc/train/step/muon_step.h"
#include "llmc/train/step/tensor_statistics.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

struct Optimizer {
    Zero& zero;
    OptimizerConfig cfg;
    uint64_t seed;
    real* sums;                    // of squares, per block of the gradients; as large on all ranks of a stage
    ops::GradientState* state;
    TensorStatistics* tensors = nullptr;   // null: none are taken

    static constexpr size_t kChunk = 1 << 20;      // elements of offloaded state per update

    // What the optimizer keeps of each weight. Muon's momentum is in the slot of first moments.
    static std::vector<StateSlot> slots(OptimizerKind kind);
    // Tensors that a rank needs whole (layout.h).
    static std::vector<std::string> owned_whole(const OptimizerConfig& o, const Dims& d) {
        return o.kind == OptimizerKind::Muon ? muon_tensors(d) : o.owned_whole;
    }

    Optimizer(const Config& cfg, Zero& zero);
    Optimizer(const Optimizer&) = delete;
    void add_to(Arena& arena);
    // Steps that measure updates then update kChunk elements at once: no second copy of the weights. The bits
    // are those of other steps. Returns the most elements that are updated at once.
    size_t watch(TensorStatistics& tensors);

    // The host never waits here: results stay on the device.
    // *out = the sum of squares of the gradients in this rank's shards, each parameter counted on one rank.
    void sum_squares(double* out);
    // Sets *state for update(): the norm before clipping, the scale, and whether the step is finite. squares:
    // over the job. loss: a multiple of the step's.
    void clip(const double* squares, const double* loss);

    // Leaves weights and state unchanged if the step is not finite. step: finished steps. Collective.
    void update(double lr, int64_t step);

private:
    // A slice of a bucket, updated at once: a chunk of this rank's elements, or a matrix for Muon.
    struct Slice {
        int bucket;
        size_t from, count;                        // of the owned elements
        std::vector<ops::AdamwTensor> tensors;     // inside the chunk
        std::vector<double> rates;                 // peak learning rate of each
        const Tensor* matrix = nullptr;
    };
    using State = std::vector<real*>;              // of each slot of zero.state; null: the slice has none

    bool counts(const Tensor& t, int tp) const;
    double peak_rate(const Tensor& t) const;
    void add_slices(std::vector<Slice>& slices, int bucket, size_t chunk) const;
    Slice make_slice(int bucket, size_t from, size_t count) const;
    static bool has(const StateSlot& slot, const Slice& t) { return !t.matrix || slot.has(*t.matrix); }
    State state_of(const Slice& t) const;
    void load(const Slice& t, const State& to) const;          // offloaded state, to the device
    void store(const Slice& t, const State& from) const;
    void update(Slice& t, const State& s, ops::Adamw adamw, double lr) const;
    void update_slice(Slice& t, const State& s, const ops::Adamw& adamw, double lr, int64_t step) const;
    void step_slice(Slice& t, const State& s, const ops::Adamw& adamw, double lr, int64_t step) const;

    std::vector<Zero::Run> counted;
    std::vector<Slice> slices, small;              // small: of steps that measure updates
    std::optional<Muon> muon;
    State chunks[2];                               // offloaded state on the device
};

}  // namespace PRECISION
