#include "llmc/train/run/run_memory.h"

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/comm/agents/messages.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/comm/transport/nccl_blocks.h"
#include "llmc/model/gpu_sizes.h"
#include "llmc/model/rotary_table.h"
#include "llmc/train/score/scores.h"

namespace PRECISION::inline runs {

// At every ZeRO stage, so that norms are sums in the same order.
static bool codes_shards(const Config& cfg, const Mesh& mesh) {
    return cfg.run.products == ProductKind::Fp8 && mesh.shard.size > 1;
}

static ShardOptions shard_options(const Config& cfg, const Mesh& mesh) {
    const Dims d = dims_of(cfg, cfg.model.vocab, mesh.tp);
    return {.state = Optimizer::slots(cfg.optimizer),
            .sharding = sharding_of(cfg.parallel.zero, mesh.shard.size,
                                    offloads_weights(cfg.memory.offload)),
            .trailing = Optimizer::trailing(cfg.optimizer, d),
            .coded = codes_shards(cfg, mesh) ? coded_names() : std::vector<std::string>(),
            .trains = cfg.train.steps > 0,
            .offload = cfg.memory.offload != Offload::None,
            .hosts_blocks = offloads_weights(cfg.memory.offload)};
}

// Bytes for tuning, including the scratch of timed ops.
static size_t bytes_to_tune(const Walk& step, size_t scratch) {
    const size_t tensors = ops::tuning_bytes(step);
    return tensors ? tensors + scratch + 4096 : 0;        // and whole pages
}

// 0: without FP8. Where weights are gathered block by block, so are their codes.
static int coded_blocks(const Config& cfg, const Shards& shards) {
    if (cfg.run.products != ProductKind::Fp8) return 0;
    return shards.sharding.weights || shards.hosts_blocks ? 1 : int(shards.layout.block_at.size());
}

static void check_sizes(const Config& cfg, int tp) {
    if (ops::target().backend != Target::Cuda || ops::target().any_size) return;
    const std::string wrong = wrong_on_gpus(cfg.model, tp);
    CHECK_INPUT(wrong.empty(), "{}", wrong);
}

// Texts of a training run need no more positions than they have tokens, at most one for a byte of the prompt;
// so a long context takes no memory for them. Other programs have texts of any length.
static Dims dims_of_texts(const Config& cfg, Dims d) {
    constexpr size_t kLeast = 4096;
    const size_t text = cfg.sample.prompt.size() + size_t(cfg.sample.tokens) + 64;      // and a beginning
    if (cfg.train.steps > 0) d.maxT = int(std::min(size_t(d.maxT), std::max(kLeast, text)));
    return d;
}

Model::Model(const Config& cfg, const Mesh& on, int micro_batch, bool generates, Unplanned)
    : mesh(on), stage(make_stage(cfg, mesh, micro_batch)),
      shards(dims_of(cfg, cfg.model.vocab, mesh.tp), stage.part(cfg.model.layers), mesh,
             shard_options(cfg, mesh)),
      zero(shards, cfg.parallel.overlap),
      gpt({.d = shards.d, .B = micro_batch, .T = cfg.model.context, .cp = mesh.cp.size,
           .level = cfg.memory.recompute, .backward = cfg.train.steps > 0,
           .coded_blocks = coded_blocks(cfg, shards), .gathers_codes = zero.codes.shards != nullptr,
           .halves = cfg.train.steps > 0 && stage.shape.halves(), .by_layers = stage.shape.layers,
           .hosts_streams = cfg.memory.offload == Offload::Activations},
          mesh.tp, stage.part(cfg.model.layers), stage.buffers,
          {.cp = mesh.cp, .kind = cfg.parallel.cp_kind}),
      pipeline(cfg, mesh, stage, gpt, zero), images(cfg.train.rollback, shards) {
    check_sizes(cfg, mesh.tp.size);
    zero.add_weights_to(arena, host);
    if (gpt.shape.halves) zero.vectors.set_up(shards, stage.buffers);
    if (cfg.train.steps > 0) {
        zero.add_training_to(arena, host);
        optimizer.emplace(cfg, zero);
        optimizer->add_to(arena);
        if (cfg.log.health || cfg.log.histograms) {
            health.emplace(cfg, shards, gpt);
            health->add_to(arena, optimizer->attach(*health));
        }
        statistics.emplace(pipeline, *optimizer, mesh.world, votes, cfg.log.health > 0);
        statistics->add_to(arena, host);
    }
    if (saves_initial(cfg)) shards.add_masters_to(arena, host);
    const ArenaOf activations = arena.of(Purpose::Activations);
    gpt.add_to(activations, &host);
    pipeline.add_to(activations, host);
    if (generates) {
        decoder.emplace(dims_of_texts(cfg, shards.d), mesh.tp, stage.part_to_infer(cfg.model.layers));
        decoder->add_to(activations);
    }
    if (!cfg.eval.tasks.empty()) {
        scorer.emplace(shards.d, mesh.tp, stage.part_to_infer(cfg.model.layers));
        scorer->add_to(activations);
    }
    // host code writes to the disk; training goes on beside an asynchronous save
    const bool trains = cfg.train.steps > 0, saves = trains || saves_initial(cfg);
    if ((trains && saves_async(cfg)) || (saves && !ops::reached_by_host())) {
        const RankShare share = share_to_save(shards);
        host.add("snapshot for checkpoints", &snapshot, size_t(share.bytes - share.offloaded));
    }
    images.add_to(host);
    // reductions of tp and cp, one after the other, run beside reductions of the other axes
    staging_bytes = zero.staging_bytes();
    const size_t reduced = std::max(gpt.reduction_bytes(), scorer ? scorer->reduction_bytes() : 0);
    const size_t over_cp = gpt.attention.reduction_bytes(shards.d, size_t(gpt.shape.N()));
    tp_staging_bytes = std::max({mesh.tp.reduce_staging(reduced), zero.tp_staging_bytes(),
                                 cfg.train.steps > 0 ? mesh.cp.reduce_staging(over_cp) : 0});
    arena.add("staging of reductions", &staging, staging_bytes);
    arena.add("staging of reductions", &tp_staging, tp_staging_bytes);
}

// Heap and stacks that a process touches during training, at most. Ranks that are threads share these bytes.
// Measured:
//     0.09 MB     always, on any mesh; 0.05 for each further thread, 0.13 on a busy machine
//     0.1 MB      where checkpoints are saved; so in each rank that is a thread
//     0.85 kB     for each piece of the rank's share of a checkpoint; 1.2 for each piece in the manifest
//     0.1 MB      in a rank of several processes
//     0.3 MB      with texts
//     1 MB        where weights are read
//     0.5 MB      with traces and statistics of tensors
//     0.1 MB      where replicas are compared
//     0.2 MB      where a library allocates; 1.6 where it does so in several threads (malloc keeps blocks)
// On a GPU: the device's page tables for pinned memory of the host, 8 bytes a page of 4 KB, in pages of 2 MB.
// Measured on an H100 and an H200: 2 to 44 MB for 1.7 to 22 GB.
static size_t bytes_of_program(const Model& m, const Config& cfg) {
    if (!ops::reached_by_host()) return m.host.bytes() / 512 + (4 << 20);
    size_t bytes = 130'000 + 150'000 * size_t(ops::target().threads - 1);
    if (m.decoder) bytes += 400'000;
    if (!starts_random(cfg.model.init)) bytes += 1'200'000;
    if (m.health) bytes += 600'000;
    if (cfg.run.sniff || cfg.run.check_every || cfg.run.replay_every) bytes += 150'000;
    // windows of figures in each image
    if (m.health && cfg.train.rollback.every) bytes += Images::kImages * 1'700 * m.health->names.size();
    if (m.library_bytes) bytes += ops::target().threads > 1 ? 2'000'000 : 400'000;
    const Group& world = *m.mesh.world.group;
    const bool threads = m.mesh.world.size > 1 && world.transport->name == std::string_view("threads");
    if (threads) bytes = bytes / size_t(m.mesh.world.size) + 60'000;
    else if (m.mesh.world.size > 1) bytes += 100'000;
    if (cfg.checkpoint.every <= 0) return bytes;
    const size_t in_manifest = threads ? 1 : size_t(m.mesh.world.size);      // for each piece of this rank
    return bytes + 100'000 + share_to_save(m.shards).pieces.size() * (850 + 1'200 * in_manifest);
}

// A run measures what is available when NCCL has its memory.
static size_t bytes_of_nccl(const Config& cfg, const Mesh& mesh) {
    if (!is_described(mesh) || ops::reached_by_host()) return 0;
    const MeshShape shape = mesh_shape(cfg.parallel, mesh.world.size);
    return ::nccl_bytes(shape, nccl_blocks(shape, ops::target().processors));
}

int walked_micros(const PipelineShape& shape) {
    return std::min(shape.micros, shape.chunks > 1 && !shape.layers ? 2 * shape.stages : 3);
}

Model::Model(const Config& cfg, const Mesh& on, int micro_batch, bool generates, int micros)
    : Model(cfg, on, micro_batch, generates, Unplanned()) {
    const int few = walked_micros(stage.shape);
    step = walk_of_run(cfg, mesh, {.micro_batch = micro_batch, .micros = micros ? micros : few});
    const Walk rest = walk_of_run(cfg, mesh, {.micro_batch = micro_batch, .micros = few,
                                              .trains = health.has_value(),
                                              .evaluated = uint64_t(micro_batch) * uint64_t(mesh.dp.size),
                                              .prompt = 1, .generates = generates, .scores = true,
                                              .health = true});
    scratch_bytes = std::max({step.needs().scratch, rest.needs().scratch,
                              needs::any_rows(ops::target()).scratch});
    library_bytes = std::max(step.needs().library, rest.needs().library);
    program_bytes = bytes_of_program(*this, cfg);
    nccl_bytes = bytes_of_nccl(cfg, mesh);
    // of this rank, and as many of a rank of another agent
    const int places = image_places(cfg.train.rollback.every > 0, cfg.run.check_every > 0);
    if (cfg.run.elastic && cfg.train.steps > 0)
        image_bytes = 2 * uint64_t(places) * share_to_save(shards).bytes;
    arena.add("scratch of operations", &scratch, scratch_bytes);
    tuning_bytes = bytes_to_tune(step, scratch_bytes);
}

// Walks the last calls of the decoder: for a prompt of this length, for the ids that stay where the window
// moves, and for a full context. Then a call of one token with the longest cache. Other calls are like these,
// with fewer keys.
static void walk_text(const Config& cfg, Model& model, size_t prompt) {
    Generator generator(cfg, model.mesh, *model.decoder, model.zero);
    const size_t rows = size_t(model.decoder->own.rows), context = size_t(model.decoder->own.d.maxT);
    const auto walk_next = [&](size_t count, size_t cached) {
        TextState text{.ids = std::vector<int32_t>(count), .window = 0, .cached = cached};
        generator.next(text, 0);
    };
    for (const size_t count : {std::min(prompt, context), std::max<size_t>(1, context / 2), context}) {
        const size_t last = (count - 1) / rows * rows;          // where the last call begins
        walk_next(count, last - std::min(last, rows));
    }
    walk_next(context, context - 1);
}

void enqueue_update(Model& model, double lr, int64_t step) {
    const StepSums sums = model.statistics->sum_over_ranks();
    model.optimizer->clip(sums.squares, sums.loss);
    model.optimizer->update(lr, step);
    model.statistics->start_read();
}

Walk walk_of_run(const Config& whole, const Mesh& mesh, const WalkedRun& run) {
    Config cfg = whole;
    const int64_t tokens = int64_t(cfg.model.context) * mesh.dp.size * run.micro_batch;
    if (run.micros) cfg.train.batch_tokens = tokens * run.micros;
    Model model(cfg, mesh, run.micro_batch, run.generates, Model::Unplanned());
    model.arena.describe();
    model.host.describe();
    model.gpt.ready();
    return walk_of(ops::target(), [&] {
        if (model.optimizer && run.trains) {
            if (model.health && run.health) model.health->begin_as(true, 0);
            model.pipeline.walk();
            enqueue_update(model, 0, 0);
            if (model.health) model.health->begin_as(false, 0);
        }
        if (run.evaluated) model.pipeline.walk_evaluation(run.evaluated);
        if (run.generates && run.prompt) walk_text(cfg, model, run.prompt);
        if (run.scores && model.scorer) walk_scores(*model.scorer, model.zero, model.mesh);
    });
}

void warm_up(const Config& cfg, const Model& model, uint64_t evaluated, size_t prompt) {
    const int few = walked_micros(model.stage.shape);
    ops::warm_up(model.step);
    ops::warm_up(walk_of_run(cfg, model.mesh, {.micro_batch = model.gpt.shape.B, .micros = few,
                                               .trains = false, .evaluated = evaluated, .prompt = prompt,
                                               .generates = model.decoder.has_value(), .scores = true}));
}

// Memory from the ranks' transport, if the transport has faster memory; else from the device.
static void* allocate_tensors(size_t bytes) {
    void* p = comm::alloc(bytes);
    return p ? p : ops::device_allocate(bytes);
}
static void free_tensors(void* p, size_t bytes) {
    if (!comm::release(p)) ops::device_free(p, bytes);
}

void Model::allocate() {
    comm::idle_barrier();
    allocated = true;
    ops::open_device();
    const std::string no_fp8 = gpt.shape.coded_blocks ? ops::no_fp8() : "";
    CHECK_INPUT(no_fp8.empty(), "run.products = fp8: {}; set run.products to bf16", no_fp8);
    arena.allocate(allocate_tensors, free_tensors);
    if (host.bytes()) host.allocate(ops::host_allocate, ops::host_free);
    comm::idle_barrier();
    ops::lend_scratch(scratch, scratch_bytes);
    zero.lend_staging(staging, staging_bytes);
    for (const Axis* axis : {&mesh.tp, &mesh.cp}) axis->lend_staging(tp_staging, tp_staging_bytes);
    gpt.ready();
    fill_rotary_table(gpt.block.rotary_table, gpt.d);
    if (decoder) decoder->own.ready();
    if (scorer) scorer->ready();
}

// The next meeting of these ranks is after their memory is freed (comm/launch/launch.cpp).
Model::~Model() {
    if (allocated) comm::idle_barrier();
}

Dims dims_of(const Config& cfg, int vocab, const Axis& tp) {
    ModelConfig m = cfg.model;
    m.vocab = vocab;
    return make_dims(m, tp);
}

std::string plan_text(const Config& cfg, const Model& model) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : model.arena.plan())
        if (row.bytes) rows.push_back({"  " + row.name, human_bytes(double(row.bytes))});
    if (model.tuning_bytes > model.arena.bytes())
        rows.push_back({"  more, at the start, to choose kernels",
                        human_bytes(double(model.tuning_bytes - model.arena.bytes()))});
    if (model.library_bytes)
        rows.push_back({"  buffers of libraries", human_bytes(double(model.library_bytes))});
    if (model.program_bytes)
        rows.push_back({ops::reached_by_host() ? "  the program itself" : "  page tables of host memory",
                        human_bytes(double(model.program_bytes))});
    if (model.image_bytes)
        rows.push_back({"  images of the state, with agents", human_bytes(double(model.image_bytes))});
    if (model.nccl_bytes)
        rows.push_back({"  buffers of NCCL, by an estimate", human_bytes(double(model.nccl_bytes))});
    for (const auto& row : model.host.plan())
        if (row.bytes) rows.push_back({"  on the host: " + row.name, human_bytes(double(row.bytes))});
    const bool apart = !ops::reached_by_host() && model.host.bytes();
    if (apart) rows.push_back({"  total on the host", human_bytes(double(model.host.bytes()))});
    rows.push_back({apart ? "  total on the GPU" : "  total", human_bytes(double(model.bytes()))});
    const int ranks = model.mesh.world.size;
    const std::string where = ranks == 1 ? "" : fmt::format(", rank {} of {} over {}", model.mesh.rank, ranks,
                                                            model.mesh.world.group->transport->name);
    return fmt::format("memory plan: {} parameters, micro-batch {} x {} tokens, recompute {}{}\n",
                       grouped(int64_t(model.shards.layout.parameters)), model.gpt.shape.B, cfg.model.context,
                       cfg.memory.recompute.text(), where) + table(rows, "lr");
}

}  // namespace PRECISION::runs
