// Room base/config: every setting of a run: default, meaning, limits; reads, checks and prints settings.
// Called by main(); rooms above base read the settings. The room does not know their use, and no device.
// A section is a struct; its visit(f) lists the settings. JSON, the command line, --help, the echo of the
// resolved config and checkpoints use the list: a new setting is a member and a line of visit.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/choice.h"
#include "llmc/base/config/cluster_config.h"
#include "llmc/base/config/eval_config.h"
#include "llmc/base/config/model_config.h"
#include "llmc/base/config/run_config.h"
#include "llmc/base/config/sharding.h"
#include "llmc/base/config/train_config.h"
#include "llmc/base/config/visit.h"

inline namespace config {

// A source of tokens: a glob of shards, and a share of the tokens relative to the other corpora.
struct Corpus {
    std::string path;
    double weight = 1;
    bool operator==(const Corpus&) const = default;
};

struct DataConfig {
    std::vector<Corpus> train = {{"data/*_train_*.bin"}}, val = {{"data/*_val_*.bin"}};
    std::string tokenizer;
    bool shuffle = true;
    Choice<RowKind> rows = RowKind::Stream;

    template <class F> void visit(F&& f) {
        f("train", train, "token shards to train on: a glob, or [{\"path\": glob, \"weight\": w}, ...]");
        f("val", val, "token shards to evaluate on, written the same way");
        f("tokenizer", tokenizer,
          "tokenizer.json, GPT-2's folder, a .tiktoken or a GGUF file; empty: model.init's own, else no text "
          "and no bits per byte");
        f("shuffle", shuffle, "permute the rows anew each epoch");
        f("rows", rows, "stream: a row begins where the one before ends; documents: each begins with a "
          "document, and what does not fit is cut off");
    }
};

struct OptimizerConfig {
    Choice<OptimizerKind> kind = OptimizerKind::Adamw;
    double matrix_lr = 0.02, matrix_decay = 0, momentum = 0.95;
    int64_t momentum_warmup = 300;
    Choice<Polynomial> polynomial = Polynomial::Polar;
    int iterations = 0;
    bool cautious = false, cautious_adamw = false;
    double embed_lr = 0, head_lr = 0, vector_lr = 0;
    double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, grad_clip = 1.0;
    Choice<LrSchedule> schedule = LrSchedule::Cosine;
    int64_t warmup = 100, decay = 0;
    double final_lr = 0.1;
    bool stochastic_rounding = false;
    Choice<StateDtype> state = StateDtype::Fp32;
    bool master = true;

    template <class F> void visit(F&& f) {
        f("kind", kind, "muon: matrices of blocks by Muon, all else by AdamW");
        f("matrix_lr", matrix_lr, "peak learning rate of Muon's matrices; follows the schedule of lr",
          range(0, 10));
        f("matrix_decay", matrix_decay, "weight decay of Muon's matrices, times matrix_lr", range(0, 10));
        f("momentum", momentum, "decay of Muon's momentum per step", half_open(0, 1));
        f("momentum_warmup", momentum_warmup, "steps in which momentum goes from 0.85 to its value",
          range(0, kMany));
        f("polynomial", polynomial, "of Muon's iterations toward an orthogonal matrix");
        f("iterations", iterations, "of the polynomial; 0: as many as suit it (polar 5, quintic 5, cubic 12)",
          range(0, 100));
        f("cautious", cautious, "weight decay only where update and weight have one sign; with kind = muon "
          "of Muon's matrices alone");
        f("cautious_adamw", cautious_adamw, "with kind = muon: cautious for AdamW's matrices too");
        f("embed_lr", embed_lr, "peak learning rate of embeddings, by the schedule of lr; 0: lr",
          range(0, 10));
        f("head_lr", head_lr, "peak learning rate of an untied head; 0: lr", range(0, 10));
        f("vector_lr", vector_lr, "peak learning rate of gains and biases; 0: lr", range(0, 10));
        f("lr", lr, "peak learning rate of AdamW; 0: nothing is trained", range(0, 10));
        f("beta1", beta1, "decay of AdamW's first moment per step", half_open(0, 1));
        f("beta2", beta2, "decay of AdamW's second moment per step", half_open(0, 1));
        f("eps", eps, "added to the root of AdamW's second moment", range(1e-30, 1));
        f("weight_decay", weight_decay, "of AdamW's matrices: decoupled, times their learning rate",
          range(0, 10));
        f("grad_clip", grad_clip, "largest global norm of the gradient; 0: no clipping", at_least(0));
        f("schedule", schedule, "of the learning rate after warmup");
        f("warmup", warmup, "steps of linear rise to lr", range(0, kMany));
        f("final_lr", final_lr, "learning rate of the last step as a fraction of lr", range(0, 1));
        f("decay", decay, "steps of wsd's final decay, which begins after warmup; 0: train.steps / 5",
          range(0, kMany));
        f("stochastic_rounding", stochastic_rounding, "of bf16 weights from their FP32 masters");
        f("state", state, "moments between steps, Muon's momentum too. bf16: rounded stochastically, in any "
          "run.precision; fp32: in full (fp64 with run.precision = fp64)");
        f("master", master, "keep FP32 masters of bf16 weights. false: steps read the bf16 weights and round "
          "them stochastically; with run.precision = bf16");
    }
};

struct ParallelConfig {
    int tp = 1, pp = 1, cp = 1, zero = 0, zero_group = 0, ranks = 0;
    Choice<TransportKind> transport = TransportKind::Auto;
    Choice<PipelineSchedule> schedule = PipelineSchedule::OneFOneB;
    int virtual_stages = 1;
    Choice<CpKind> cp_kind = CpKind::Gather;
    std::string order = "tp,cp,pp,dp";
    bool overlap = true;
    Choice<ReduceOrder> reduce = ReduceOrder::Auto;
    Choice<ReduceDtype> reduce_dtype = ReduceDtype::Fp32;

    template <class F> void visit(F&& f) {
        f("tp", tp, "ranks that share each layer's matrices (tensor parallelism)", range(1, 1024));
        f("pp", pp, "ranks that share the layers (pipeline stages)", range(1, 1024));
        f("cp", cp, "ranks that share each row of tokens (context parallelism)", range(1, 1024));
        f("cp_kind", cp_kind, "what attention exchanges over cp. gather: keys and values; heads: each rank "
          "gets whole rows of some heads");
        f("zero", zero, kZeroHelp, range(0, int(std::size(kZeroStages)) - 1));
        f("zero_group", zero_group, "ranks that hold one copy of what zero shards; 0: all",
          range(0, 1 << 20));
        f("order", order, "axes of the mesh from the innermost, whose ranks are neighbours and share a host");
        f("ranks", ranks, "ranks of the job; 0: as many as were launched", range(0, 1 << 20));
        f("transport", transport, "of messages between ranks");
        f("schedule", schedule, "order of micro-batches in the pipeline. zb: stages that would wait compute "
          "gradients of matrices then");
        f("virtual_stages", virtual_stages, "chunks of layers per rank of an interleaved pipeline",
          range(1, 64));
        f("overlap", overlap, "gather and reduce blocks over data-parallel ranks while computing; tp "
          "always waits");
        f("reduce", reduce, "sums over data-parallel ranks. ordered: by rank; native: the library's order; "
          "auto: native over NCCL, else ordered");
        f("reduce_dtype", reduce_dtype, "of gradients on the wire");
    }
};

struct MemoryConfig {
    Choice<Recompute> recompute = Recompute::None;
    Choice<Offload> offload = Offload::None;
    double device_gb = 0;

    // Of bytes that a rank could have; 0: unknown.
    size_t limited(size_t available) const {
        const size_t most = size_t(1e9 * device_gb);
        return device_gb > 0 && (available == 0 || available > most) ? most : available;
    }

    template <class F> void visit(F&& f) {
        f("recompute", recompute, "in backward; selective: norms and activations; block: whole blocks");
        f("offload", offload, "what to keep in the host's memory: the optimizer's state; weights: also those "
          "of blocks, with gradients; activations: also the blocks' inputs");
        f("device_gb", device_gb, "most memory of a rank on its device, in 1e9 bytes; 0: all that is there",
          at_least(0));
    }
};

struct CheckpointConfig {
    int64_t every = 1000;
    int keep_last = 2;
    int64_t keep_every = 0;
    std::string resume = "auto";
    bool async = true;
    std::string hook;
    double hook_timeout = 3600;
    std::vector<std::string> override_;    // key "override", which C++ reserves in places

    bool resumes_newest() const { return resume == "auto"; }
    bool begins_anew() const { return resume == "never"; }
    bool resumes_from_path() const { return !resumes_newest() && !begins_anew(); }
    bool due(int64_t step, bool last) const { return every && (last || (step > 0 && step % every == 0)); }

    template <class F> void visit(F&& f) {
        f("every", every, "steps between checkpoints, also after the last step; 0: only when a signal asks",
          at_least(0));
        f("keep_last", keep_last, "newest checkpoints to keep; 0: all", at_least(0));
        f("keep_every", keep_every, "also keep checkpoints whose step is a multiple of this number; 0: off",
          at_least(0));
        f("resume", resume,
          "auto: go on from the newest checkpoint of run.dir; never; a folder step_N, or a run (its newest)");
        f("async", async, "write to disk while training goes on; with memory.offload until the next update");
        f("hook", hook, "command that gets the folder of each complete checkpoint as its last argument");
        f("hook_timeout", hook_timeout, "seconds that the command may take before it is killed; 0: any time",
          at_least(0));
        f("override", override_, "keys whose values may differ from those of the checkpoint");
    }
};

struct LogConfig {
    int64_t every = 1;
    bool comm = false;
    double peak_tflops = 0;
    bool tensorboard = false;
    std::string prometheus;
    std::vector<int64_t> trace;
    int64_t health = 0, histograms = 0;

    // step: the number of the step, from 1.
    bool health_due(int64_t step) const { return health && step % health == 0; }
    bool histograms_due(int64_t step) const { return histograms && step % histograms == 0; }

    template <class F> void visit(F&& f) {
        f("every", every, "steps between lines on screen; metrics.jsonl has every step; 0: none",
          at_least(0));
        f("comm", comm, "log time and volume of communication");
        f("peak_tflops", peak_tflops, "matmul rate of a rank's device in TFLOP/s, for mfu; 0: measured on a "
          "CPU, of a GPU what its maker states", at_least(0));
        f("tensorboard", tensorboard, "write an event file to run.dir, which TensorBoard and Aim open");
        f("prometheus", prometheus, "a file FILE.prom for node_exporter's textfile collector, replaced once "
          "a second at most; empty: none");
        f("trace", trace, "steps to record on every rank, [10, 200] say: run.dir/trace_step_N.json, which "
          "Perfetto and chrome://tracing open", range(1, kMany));
        f("health", health, "steps between statistics of each layer's weights, gradients, updates and "
          "activations in metrics.jsonl; 0: none", at_least(0));
        f("histograms", histograms, "steps between histograms of weights and gradients in the event file of "
          "log.tensorboard; 0: none", at_least(0));
    }
};

struct Config {
    std::string about;
    RunConfig run;
    ModelConfig model;
    DataConfig data;
    TrainConfig train;
    OptimizerConfig optimizer;
    ParallelConfig parallel;
    MemoryConfig memory;
    EvalConfig eval;
    SampleConfig sample;
    CheckpointConfig checkpoint;
    LogConfig log;
    ClusterConfig cluster;
    std::vector<std::string> named;         // paths set by file or command line; not a setting

    template <class F> void visit(F&& f) {
        f("about", about, "free text: what this run is for");
        f("run", run, "the run");
        f("model", model, "size and kind of the network");
        f("data", data, "tokens");
        f("train", train, "batches and steps");
        f("optimizer", optimizer, "AdamW or Muon, and learning rates");
        f("parallel", parallel, "the ranks");
        f("memory", memory, "less memory for more time");
        f("eval", eval, "validation loss, and scores of tasks");
        f("sample", sample, "text from the model");
        f("checkpoint", checkpoint, "saving and going on");
        f("log", log, "what is printed");
        f("cluster", cluster, "the machine that --plan prices");
    }
};

// Reads a config: unknown keys, wrong types and values out of range end in fatal() with the JSON path.
// `name` is the file's name, for messages.
Config parse_config(std::string_view json, const std::string& name);
Config load_config(const std::string& path);

void check_setting(const std::string& path);    // fatal() if no setting has the name
// Sets one value from text, as `--train.steps=10` does with ("train.steps", "10").
void set_value(Config& cfg, const std::string& path, const std::string& text);

// Refuses settings that contradict each other, and features missing from this version. Reads no files.
void validate(const Config& cfg);
// Exit code 78 if `ranks` ranks cannot form the mesh, or a step does not divide into its micro-batches.
void check_mesh(const Config& cfg, int ranks);
// Why `ranks` ranks cannot form these axes for this model; empty: they can.
std::string mesh_mistake(const ParallelConfig& p, const ModelConfig& m, int ranks);

// Why run.products = fp8 does not go with the precision or the sizes; empty: it does.
std::string fp8_mistake(const Config& cfg);
// The same of parallel.schedule = zb.
std::string halves_mistake(const Config& cfg);
// cfg with this level, by 1f1b where zb cannot have it.
Config with_recompute(Config cfg, Recompute level);
// Why weights cannot be without masters (optimizer.master); empty: they can, or they have masters.
std::string master_mistake(const Config& cfg);

// Why a run with these settings cannot train on `ranks` ranks; empty: it can.
std::string ranks_mistake(const Config& cfg, int ranks);

// Whether train.batch_tokens divide into micro-batches, equally many on each of dp data-parallel ranks. With
// run.elastic some ranks may have fewer. micro_batch: sequences; 0: not chosen yet, and counts as one.
bool batch_divides(const Config& cfg, int dp, int micro_batch);
// What a data-parallel rank computes in a step, at most: rows of model.context tokens, micro-batches.
int64_t rows_of_step(const Config& cfg, int dp);
int64_t micros_of_step(const Config& cfg, int dp, int micro_batch);
// Exit code 78 where batch_divides() is false; the message names the nearest multiples.
void check_batch(const Config& cfg, int dp, int micro_batch);

// Every value as JSON, in the order of visit.
std::string to_json(const Config& cfg);

}  // namespace config
