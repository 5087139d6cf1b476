#include "llmc/train/model.h"

#include "llmc/base/console.h"
#include "llmc/base/machine.h"

namespace PRECISION {

static Recompute recompute_of(const Config& cfg) {
    const std::string& r = cfg.memory.recompute;
    return r == "block" ? Recompute::Block : r == "selective" ? Recompute::Selective : Recompute::None;
}

Model::Model(const Config& cfg, const Dims& d, const Mesh& mesh, int micro_batch, bool generates)
    : zero(d, mesh),
      gpt({.d = d, .B = micro_batch, .T = cfg.model.context,
           .level = recompute_of(cfg), .backward = cfg.train.steps > 0}, mesh) {
    zero.add_weights_to(arena);
    if (cfg.train.steps > 0) {
        zero.add_training_to(arena);
        optimizer.emplace(cfg, zero);
        optimizer->add_to(arena);
    }
    gpt.add_to(arena);
    if (generates) {
        decoder.emplace(d, mesh);
        decoder->add_to(arena);
    }
    scratch_bytes = ops::scratch_bytes(gpt.scratch_sizes());
    if (decoder) scratch_bytes = std::max(scratch_bytes, ops::scratch_bytes(decoder->scratch_sizes()));
    arena.add("scratch of operations", &scratch, scratch_bytes);
}

void Model::warm_up() const {
    ops::warm_up(gpt.scratch_sizes());
    if (decoder) ops::warm_up(decoder->scratch_sizes());
}

void Model::allocate() {
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, scratch_bytes);
    gpt.ready();
}

Dims dims_of(const Config& cfg, int vocab) {
    return make_dims(cfg.model.layers, cfg.model.heads, cfg.model.channels, cfg.model.context, vocab);
}

int choose_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates) {
    if (cfg.train.micro_batch) return cfg.train.micro_batch;
    const int rows = int(cfg.train.batch_tokens / cfg.model.context);
    const double room = 0.9 * double(available_memory_bytes());
    for (int B = rows; B > 1; B--)
        if (rows % B == 0 && double(Model(cfg, d, mesh, B, generates).arena.bytes()) <= room) return B;
    return 1;
}

std::string plan_text(const Config& cfg, const Model& model) {
    std::vector<std::vector<std::string>> rows;
    for (const auto& row : model.arena.plan())
        rows.push_back({"  " + row.name, human_bytes(double(row.bytes))});
    rows.push_back({"  total", human_bytes(double(model.arena.bytes()))});
    return strf("memory plan: %s parameters, micro-batch %d x %d tokens, recompute %s\n",
                grouped(int64_t(model.zero.layout.parameters)).c_str(), model.gpt.shape.B, cfg.model.context,
                cfg.memory.recompute.c_str()) + table(rows, "lr");
}

}  // namespace PRECISION
