// The optimizer: the global gradient norm, then an update of this rank's elements over the flat buffers: by
// AdamW, or of matrices that Muon has by muon_step.h.
#pragma once
#include <optional>

#include "llmc/base/config/config.h"
#include "llmc/train/step/muon_step.h"
#include "llmc/train/step/health_meter.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline step {

struct Optimizer {
    Zero& zero;
    Shards& shards;
    OptimizerConfig cfg;
    uint64_t seed;
    real* sums;                    // of squares, per block of gradients; same size in a pipeline stage
    ops::GradientState* state;
    HealthMeter* health = nullptr;   // null: not measured

    static constexpr size_t kChunk = 1 << 20;      // elements of offloaded state per update

    // What the optimizer keeps of each weight: "master" where weights are rounded and have masters, "m" and
    // "v" (AdamW's moments; Muon's momentum is "m").
    static std::vector<StateSlot> slots(const OptimizerConfig& o);
    // Tensors without second moments, which lie behind the others (layout.h).
    static std::vector<std::string> trailing(const OptimizerConfig& o, const Dims& d);

    Optimizer(const Config& cfg, Zero& zero);
    Optimizer(const Optimizer&) = delete;
    void add_to(Arena& arena);
    // Attaches the meter. Measured steps update kChunk elements at a time, with the same bits, to avoid a
    // second copy of the weights. Returns the largest such slice.
    size_t attach(HealthMeter& meter);

    // Results stay on the device. The host waits for offloaded state alone, kChunks slices ahead.
    // *out = the sum of squares of the gradients that this rank owns.
    void sum_squares(double* out);
    // Sets *state for update(): the norm before clipping, the scale, and whether the step is finite. squares:
    // over the job. loss: summed loss of the step; only tested for being finite.
    void clip(const double* squares, const double* loss);

    // Leaves weights and state unchanged if the step is not finite. step: finished steps. Collective.
    void update(double lr, int64_t step);

private:
    // An update is a list: collectives and products, and slices of state between them.
    struct Work {
        enum Kind : uint8_t { Begin, End,                       // of a bucket
                              Start, Normalize, Orthogonalize,  // of a round of Muon
                              Momentum, Weights,                // slices: of a round's matrices
                              Adamw } kind;                     // of a bucket's other tensors
        int bucket = -1;
        size_t round = 0;
        Interval elements = {};                         // slices: of the bucket
        std::vector<ops::AdamwTensor> tensors = {};     // inside the slice
        std::vector<double> rates = {};                 // peak learning rate of each
        Muon::MatrixRun run = {};
        bool is_slice() const { return kind >= Momentum; }
    };
    using State = std::vector<std::byte*>;         // of each slot of shards.state; null: the slice needs none
    struct Slice {                                 // on the device
        State state = {};
        floatX* param = nullptr;
        real* grad = nullptr;
    };
    struct Places { size_t master, m, v; };        // of slots in the list

    double peak_rate(const Tensor& t) const;
    std::vector<Work> list_of(size_t most) const;  // slices of `most` elements at most
    void add_round(std::vector<Work>& list, size_t round, size_t most) const;
    void add_start(std::vector<Work>& list, size_t round, size_t most) const;
    void add_runs(std::vector<Work>& list, Work::Kind kind, size_t round, size_t most) const;
    void add_adamw(std::vector<Work>& list, int bucket, size_t most) const;
    Work adamw_slice(int bucket, Interval elements) const;
    static bool needs(const Work& w, const StateSlot& slot);
    static bool changes_weights(const Work& w) { return w.kind == Work::Adamw || w.kind == Work::Weights; }
    bool reads_gradient(const Work& w) const {
        return w.kind != Work::Weights || (health && health->measuring);
    }
    Slice slice_of(const Work& w) const;                       // where it lies
    // The weights to update, in full precision; null: there are only those in floatX.
    real* master_of(const Slice& s) const;
    // Of an update with offloaded tensors: slice number k is in chunk k % kChunks while on the device. What
    // does not lie on the host stays where it is.
    struct OnDevice {
        Slice chunk = {}, now = {};
        ops::CopyTicket loaded = {}, stored = {};
    };
    void load(const Work& w, OnDevice& to) const;
    void store(const Work& w, OnDevice& from) const;
    void run_offloaded(std::vector<Work>& works, double lr, int64_t step);
    void run_adamw(Work& w, const Slice& s, double lr, int64_t step) const;
    void run_slice(Work& w, const Slice& s, double lr, int64_t step) const;
    void run_measured(Work& w, const Slice& s, double lr, int64_t step) const;
    void run_between(const Work& w);
    void square(int bucket, const real* shard);    // the sums of squares of a bucket's owned elements

    Places at;
    std::vector<Run> owned;
    std::optional<Muon> muon;
    std::vector<Work> list, small;                 // small: of steps that measure updates
    static constexpr size_t kChunks = 3;           // one in use, one on each lane of copies
    OnDevice chunks[kChunks];
};

}  // namespace PRECISION::step
