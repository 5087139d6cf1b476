// Everything that a run holds in memory, planned before it is allocated.
#pragma once
#include <optional>

#include "llmc/base/host/machine.h"
#include "llmc/model/infer/scorer.h"
#include "llmc/ops/backend_tuning.h"
#include "llmc/train/run/generate.h"
#include "llmc/train/step/optimizer.h"
#include "llmc/train/step/pipeline.h"
#include "llmc/train/step/whole_tensors.h"
#include "llmc/train/save/images.h"
#include "llmc/train/save/rank_state.h"
#include "llmc/train/run/step_statistics.h"

namespace PRECISION::inline runs {

struct WalkedRun;

struct Model {
    Mesh mesh;
    Stage stage;
    Shards shards;
    Zero zero;
    Gpt gpt;
    Pipeline pipeline;
    Votes votes;                           // of steps
    Images images;                         // for train.rollback
    std::optional<Optimizer> optimizer;    // for training
    std::optional<HealthMeter> health;        // for training, with log.health or log.histograms
    std::optional<StepStatistics> statistics;      // for training
    std::optional<Decoder> decoder;        // for texts
    std::optional<Scorer> scorer;          // for eval.tasks
    Walk step = Walk(ops::target());       // of a step of a few micro-batches: every op of training
    std::byte* scratch;                    // of ops
    size_t scratch_bytes;
    size_t tuning_bytes = 0;               // of train/run/kernel_choices.h, before the arena is allocated
    std::byte *staging, *tp_staging;       // of reductions
    size_t staging_bytes, tp_staging_bytes;
    size_t library_bytes = 0;              // allocated by libraries while ops run
    size_t program_bytes = 0;              // of the program itself, or a GPU's page tables of host memory
    size_t nccl_bytes = 0;                 // of NCCL's buffers, by an estimate, in plans for GPUs
    size_t image_bytes = 0;                // of images with agents, and of copies of as many (run.elastic)
    Arena arena;
    Arena host;                            // offloaded state, the snapshot, images
    // For asynchronous saves, or weights on a device: what this rank saves, without offloaded state.
    std::byte* snapshot = nullptr;

    // Plans the memory of this rank of `mesh`, without allocating. micro_batch: sequences at once. generates:
    // with a decoder. micros: micro-batches of the walk `step`; 0: walked_micros.
    Model(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates, int micros = 0);

    // Bytes on the device that runs the ops, so on a GPU without `host`.
    size_t bytes() const {
        const size_t shared = ops::reached_by_host() ? host.bytes() : 0;
        return std::max(arena.bytes(), tuning_bytes) + library_bytes + program_bytes + nccl_bytes +
               image_bytes + shared;
    }
    ~Model();
    void allocate();                       // all ranks of a process together, like the destructor

private:
    bool allocated = false;
    struct Unplanned {};
    Model(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates, Unplanned);
    friend Walk walk_of_run(const Config& cfg, const Mesh& mesh, const WalkedRun& run);
};

// Norm, clip and update of a step, as the main loop writes them out: for walks, benchmarks and tests.
void enqueue_update(Model& model, double lr, int64_t step);

// The parts of a run to walk.
struct WalkedRun {
    int micro_batch, micros;            // micros: micro-batches of the step; 0: as the settings say
    bool trains = true;
    uint64_t evaluated = 0;             // rows of an evaluation, over all ranks; 0: no evaluation
    size_t prompt = 0;                  // ids before a text; 0: no text
    bool generates = false, scores = false;
    bool health = false;                // with the statistics of tensors that the settings ask for
};
// Micro-batches of Model::step: enough for every op of a step, as the first, the last and one between differ;
// more with several chunks.
int walked_micros(const PipelineShape& shape);

// The walk of these parts on this rank of any mesh, described or present. The walk has its own Model, without
// memory.
Walk walk_of_run(const Config& cfg, const Mesh& mesh, const WalkedRun& run);

// Lets libraries build their code for this model's steps, evaluations and texts before the first step.
void warm_up(const Config& cfg, const Model& model, uint64_t evaluated = 0, size_t prompt = 0);

// Dims of a config whose vocabulary is known.
Dims dims_of(const Config& cfg, int vocab, const Axis& tp = {});

// Memory available to a rank: its share of the host's, the least over all ranks, at most memory.device_gb.
// 0: unknown.
size_t available_to_rank(const Mesh& mesh, const MemoryConfig& limit);

// The bytes of the fullest rank. All ranks together, or a rank of a described mesh.
size_t largest_plan(const Config& cfg, const Mesh& mesh, int micro_batch, bool generates);

// train.micro_batch; if 0, the largest divisor of the rows of a step whose plan takes at most 90% of
// `available` bytes on every rank. If no divisor does, 1. Where ranks have unequal shares (run.elastic), one
// by which no rank computes much more than its share, if there is one.
int choose_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available);

// The same for a run: exit code 78, with alternatives, if the plan does not fit. saved: the checkpoint's
// micro-batch; 0: no checkpoint. It is preferred if it fits: sums in another order end in other bits.
int fitting_micro_batch(const Config& cfg, const Mesh& mesh, bool generates, size_t available, int saved = 0);

// The plan of a rank, a row per kind of memory, and its sum.
std::string plan_text(const Config& cfg, const Model& model);

}  // namespace PRECISION::runs
