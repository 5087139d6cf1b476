#include "llmc/train/model.h"

#include <set>

#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/ops/tuning.h"

namespace PRECISION {

static Recompute recompute_of(const Config& cfg) {
    const std::string& r = cfg.memory.recompute;
    return r == "block" ? Recompute::Block : r == "selective" ? Recompute::Selective : Recompute::None;
}

static Part part_of(const Config& cfg, const Stage& stage) {
    return make_part(cfg.model.layers, stage.index, stage.shape.stages, stage.shape.chunks);
}

static ZeroOptions zero_options(const Config& cfg) {
    return {.stage = cfg.parallel.zero, .overlap = cfg.parallel.overlap, .trains = cfg.train.steps > 0,
            .offload = cfg.memory.offload == "optimizer"};
}

// With the scratch of what is timed.
static size_t bytes_to_tune(const ops::ScratchSizes& s) {
    const size_t tensors = std::max(ops::tuning_bytes(s), ops::trial_bytes(s));
    return tensors ? tensors + ops::scratch_bytes(s) + 4096 : 0;        // and whole pages
}

Model::Model(const Config& cfg, const Mesh& on, int micro_batch, bool generates)
    : mesh(on), stage(make_stage(cfg, mesh, micro_batch)),
      zero(dims_of(cfg, cfg.model.vocab, mesh.tp), part_of(cfg, stage), mesh, zero_options(cfg)),
      gpt({.d = zero.d, .B = micro_batch, .T = cfg.model.context, .level = recompute_of(cfg),
           .backward = cfg.train.steps > 0}, mesh.tp, part_of(cfg, stage), stage.slots),
      pipeline(cfg, mesh, stage, gpt, zero) {
    zero.add_weights_to(arena);
    if (cfg.train.steps > 0) {
        zero.add_training_to(arena, host);
        optimizer.emplace(cfg, zero);
        optimizer->add_to(arena);
        tally.emplace(pipeline, *optimizer, mesh.world);
        tally->add_to(arena, host);
    }
    gpt.add_to(arena);
    pipeline.add_to(arena, host);
    if (generates) {
        decoder.emplace(zero.d, mesh.tp, gpt.part);
        decoder->add_to(arena);
    }
    scratch_bytes = ops::scratch_bytes(gpt.scratch_sizes());
    if (cfg.train.steps > 0) tuning_bytes = bytes_to_tune(gpt.scratch_sizes());
    if (decoder) scratch_bytes = std::max(scratch_bytes, ops::scratch_bytes(decoder->scratch_sizes()));
    arena.add("scratch of operations", &scratch, scratch_bytes);
    library_bytes = ops::library_bytes(gpt.scratch_sizes());
    // host code writes to the disk
    if (cfg.train.steps > 0 && (saves_async(cfg) || !ops::reached_by_host()))
        host.add("snapshot for checkpoints", &snapshot, size_t(share_to_save(zero).bytes));
    // reductions of tp run beside those of the other axes
    staging_bytes = zero.staging_bytes();
    tp_staging_bytes = std::max(mesh.tp.reduce_staging(gpt.reduction_bytes()), zero.tp_staging_bytes());
    arena.add("staging of reductions", &staging, staging_bytes);
    arena.add("staging of reductions", &tp_staging, tp_staging_bytes);
}

static void warm_up_rows(ops::ScratchSizes sizes, std::set<int> rows) {
    for (const int n : rows) {
        if (n == 0) continue;
        sizes.N = n;
        ops::warm_up(sizes);
    }
}

void Model::warm_up(uint64_t evaluated, size_t prompt) const {
    const int B = gpt.shape.B, T = gpt.shape.T;
    const int last = int(evaluated % uint64_t(B)), none = mesh.dp.size > 1 ? 1 : 0;     // no row is left: any
    warm_up_rows(gpt.scratch_sizes(), {B * T, last * T, none * T});
    if (!decoder) return;
    const int rows = decoder->rows, half = decoder->d.maxT / 2;     // where the window moves on
    warm_up_rows(decoder->scratch_sizes(), {rows, int(prompt % size_t(rows)), half % rows, 1});
}

// Memory that the ranks' transport is fast with, where there is such.
static void* allocate_tensors(size_t bytes) {
    void* p = comm::alloc(bytes);
    return p ? p : ops::device_allocate(bytes);
}
static void free_tensors(void* p, size_t bytes) {
    if (!comm::release(p)) ops::device_free(p, bytes);
}

void Model::allocate() {
    arena.allocate(allocate_tensors, free_tensors);
    if (host.bytes()) host.allocate(ops::host_allocate, ops::host_free);
    ops::lend_scratch(scratch, scratch_bytes);
    zero.lend_staging(staging, staging_bytes);
    mesh.tp.lend_staging(tp_staging, tp_staging_bytes);
    gpt.ready();
}

Dims dims_of(const Config& cfg, int vocab, const Axis& tp) {
    return make_dims(cfg.model.layers, cfg.model.heads, cfg.model.channels, cfg.model.context, vocab, tp);
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
    for (const auto& row : model.host.plan())
        rows.push_back({"  on the host: " + row.name, human_bytes(double(row.bytes))});
    const bool apart = !ops::reached_by_host() && model.host.bytes();
    if (apart) rows.push_back({"  total on the host", human_bytes(double(model.host.bytes()))});
    rows.push_back({apart ? "  total on the GPU" : "  total", human_bytes(double(model.bytes()))});
    const int ranks = model.mesh.world.size;
    const std::string where = ranks == 1 ? "" : strf(", rank %d of %d over %s", model.mesh.rank, ranks,
                                                     model.mesh.world.group->transport->name);
    return strf("memory plan: %s parameters, micro-batch %d x %d tokens, recompute %s%s\n",
                grouped(int64_t(model.zero.layout.parameters)).c_str(), model.gpt.shape.B, cfg.model.context,
                cfg.memory.recompute.c_str(), where.c_str()) + table(rows, "lr");
}

}  // namespace PRECISION
