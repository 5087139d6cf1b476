#include "llmc/train/tuning.h"

#include "llmc/base/files.h"
#include "llmc/ops/tuning.h"

namespace PRECISION {

// f(memory), with so many bytes of it, and with scratch
template <class F> static void with_memory(const ops::ScratchSizes& sizes, size_t bytes, F f) {
    Arena arena;
    std::byte *memory, *scratch;
    arena.add("tensors", &memory, bytes);
    arena.add("scratch of operations", &scratch, ops::scratch_bytes(sizes));
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, ops::scratch_bytes(sizes));
    f(memory);
    ops::synchronize();
    ops::lend_scratch(nullptr, 0);
}

static std::string decide(const Config& cfg, const ops::ScratchSizes& sizes) {
    const std::string path = cfg.run.dir + "/kernels.txt", saved = file_exists(path) ? read_file(path) : "";
    ops::use_choices(saved);
    if (!ops::tuned(sizes)) {
        with_memory(sizes, ops::tuning_bytes(sizes), [&](void* memory) { ops::tune(sizes, memory); });
        make_directories(cfg.run.dir);
        write_file(path, ops::choices(saved));
    }
    return ops::choices();
}

void choose_kernels(const Config& cfg, const Model& model) {
    if (!model.tuning_bytes) return;
    const Axis& world = model.mesh.world;
    const ops::ScratchSizes sizes = model.gpt.scratch_sizes();
    std::string text;
    if (model.mesh.rank == 0) text = decide(cfg, sizes);
    uint64_t length = text.size();
    world.broadcast(&length, 1, 0);
    text.resize(length);
    world.broadcast(text.data(), length, 0);
    if (model.mesh.rank != 0) ops::use_choices(text);
    with_memory(sizes, ops::trial_bytes(sizes), [&](void* memory) { ops::try_choices(sizes, memory); });
}

}  // namespace PRECISION
