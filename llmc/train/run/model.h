// Everything that a run holds in memory, planned before it is allocated.
#pragma once
#include <optional>

#include "llmc/base/machine.h"
#include "llmc/ops/backend_tuning.h"
#include "llmc/train/run/generate.h"
#include "llmc/train/step/optimizer.h"
#include "llmc/train/step/pipeline.h"
#include "llmc/train/save/rank_state.h"
#include "llmc/train/run/step_statistics.h"

namespace PRECISION {

struct WalkedRun;

struct Model {
    Mesh mesh;
    Stage stage;
    Zero zero;
    Gpt gpt;
    Pipeline pipeline;
    Votes votes;                           // of steps
    std::optional<Optimizer> optimizer;    // when there are steps to train
    std::optional<StepStatistics> statistics;      // likewise
    std::optional<Decoder> decoder;        // when text is generated
    Walk step = Walk(ops::target());       // of a step of a few micro-batches: every op that training has
    std::byte* scratch;                    // of ops
    size_t scratch_bytes;
    size_t tuning_bytes = 0;               // that train/run/kernel_choices.h takes, before the rest is there
    std::byte *staging, *tp_staging;       // of reductions
    size_t staging_bytes, tp_staging_bytes;
    size_t library_bytes = 0;              // that libraries take by themselves, while ops run
    Arena arena;
    Arena host;                            // what is offloaded, and the snapshot
    std::byte* snapshot = nullptr;         // of what a checkpoint holds of this rank, where saving is
                                           // asynchronous or the state is on a device

    // A rank's part of the model. micro_batch: sequences at once. Plans; takes no memory.
    Model(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates);

    // Of the memory that operations work in: without `host` where that is a GPU's.
    size_t bytes() const {
        const size_t shared = ops::reached_by_host() ? host.bytes() : 0;
        return std::max(arena.bytes(), tuning_bytes) + library_bytes + shared;
    }
    ~Model();
    void allocate();                       // all ranks of a process together, as the end is

private:
    bool allocated = false;
    struct Unplanned {};
    Model(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates, Unplanned);
    friend Walk walk_of_run(const Config& cfg, const Mesh& mesh, const WalkedRun& run);
};

// Norm, clip and update of a step, as the main loop writes them out: for walks, benchmarks and tests.
void enqueue_update(Model& model, double lr, int64_t step);

// What is walked of a run: a step of `micros` micro-batches (0: as many as the settings say), an evaluation
// of `evaluated` rows over all ranks (0: none), and a text that begins with `prompt` ids (0: none).
struct WalkedRun {
    int micro_batch, micros;
    bool trains = true;
    uint64_t evaluated = 0;
    size_t prompt = 0;
    bool generates = false;
};
// Of any mesh, described or present, on this rank. By a model of its own, which takes no memory.
Walk walk_of_run(const Config& cfg, const Mesh& mesh, const WalkedRun& run);

// Libraries build what they build on first use: for this model's steps, evaluations and texts.
void warm_up(const Config& cfg, const Model& model, uint64_t evaluated = 0, size_t prompt = 0);

// Dims of a config whose vocabulary is known.
Dims dims_of(const Config& cfg, int vocab, const Axis& tp = {});

// What a rank may take: its share of what the host has, the least over all ranks. 0: the system does not
// tell.
size_t available_to_rank(const Mesh& mesh);

// The bytes of the rank that needs most. All ranks together, or one of a mesh that is only described.
size_t largest_plan(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates);

// train.micro_batch, or where that is 0 the largest divisor of the rows of a step whose plan fits in memory
// on every rank; 1 where none does.
int choose_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available);

// The same, refused where its plan does not fit: the message names what would. saved: that of the checkpoint
// which the run goes on from, taken where it fits, since sums in another order end in other bits; 0: none.
int fitting_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available, int saved = 0);

// With what there is.
int choose_micro_batch(const Config& cfg, const Mesh& mesh, bool generates);
int fitting_micro_batch(const Config& cfg, const Mesh& mesh, bool generates);

// The plan of a rank, a row per kind of memory, and its sum.
std::string plan_text(const Config& cfg, const Model& model);

}  // namespace PRECISION
