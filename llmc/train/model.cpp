#include "llmc/train/model.h"

#include "llmc/base/console.h"

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
    if (!decoder) return;
    ops::ScratchSizes sizes = decoder->scratch_sizes();
    for (int rows : {decoder->rows, 1}) {    // a prompt, then a token at a time
        sizes.N = rows;
        ops::warm_up(sizes);
    }
}

void Model::allocate() {
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, scratch_bytes);
    gpt.ready();
}

Dims dims_of(const Config& cfg, int vocab) {
    return make_dims(cfg.model.layers, cfg.model.heads, cfg.model.channels, cfg.model.context, vocab);
}

// The largest divisor of the rows of a step whose plan takes at most `room` bytes; 0: none does.
static int largest_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates,
                               double room) {
    const int rows = int(cfg.train.batch_tokens / cfg.model.context);
    for (int B = rows; B > 0; B--)
        if (rows % B == 0 && double(Model(cfg, d, mesh, B, generates).arena.bytes()) <= room) return B;
    return 0;
}

int choose_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates, size_t available) {
    if (cfg.train.micro_batch) return cfg.train.micro_batch;
    return std::max(1, largest_micro_batch(cfg, d, mesh, generates, 0.9 * double(available)));
}

int fitting_micro_batch(const Config& cfg, const Dims& d, const Mesh& mesh, bool generates,
                        size_t available) {
    const auto plan = [&](const Config& c, int B) { return Model(c, d, mesh, B, generates).arena.bytes(); };
    const auto shown = [](size_t bytes) { return human_bytes(double(bytes)); };
    const int B = choose_micro_batch(cfg, d, mesh, generates, available);
    if (available == 0 || plan(cfg, B) <= available) return B;      // 0: the system does not tell

    const std::string what = strf("no memory for the tensors: train.micro_batch = %d needs %s, %s are "
                                  "available.", B, shown(plan(cfg, B)).c_str(), shown(available).c_str());
    const int fits = largest_micro_batch(cfg, d, mesh, generates, double(available));
    CHECK_INPUT(fits == 0, "%s\n       The largest that fits is train.micro_batch = %d, with %s",
                what.c_str(), fits, shown(plan(cfg, fits)).c_str());
    Config block = cfg;
    block.memory.recompute = "block";
    const size_t least = plan(block, 1);
    CHECK_INPUT(least > available, "%s\n       No micro-batch fits as it is; with memory.recompute=block "
                "train.micro_batch=1 does, with %s", what.c_str(), shown(least).c_str());
    fatal(kExitConfig, __FILE__, __LINE__, "%s\n       No micro-batch fits: with memory.recompute=block and "
          "one sequence at once %s are needed.\n       Make the model or model.context smaller, or stop what "
          "else holds memory (--plan prints what needs how much)", what.c_str(), shown(least).c_str());
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
