#include "llmc/train/run/kernel_choices.h"

#include <xxhash.h>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/host/cache_file.h"
#include "llmc/comm/votes.h"
#include "llmc/ops/backend_tuning.h"

namespace PRECISION::inline runs {

// f(memory) with `bytes` of memory, and with scratch
template <class F> static void with_memory(size_t scratch_bytes, size_t bytes, F f) {
    Arena arena;
    std::byte *memory, *scratch;
    arena.add("tensors", &memory, bytes);
    arena.add("scratch of operations", &scratch, scratch_bytes);
    arena.allocate(ops::device_allocate, ops::device_free);
    ops::lend_scratch(scratch, scratch_bytes);
    f(memory);
    ops::synchronize();
    ops::lend_scratch(nullptr, 0);
}

static std::string text_of(const std::string& path) { return file_exists(path) ? read_file(path) : ""; }

// Choices among other candidates are another file: a build with a new kernel times it. The run's own file
// stays valid, as a resumed run ends in the same bits.
static std::string shared_choices() {
    const std::string names = ops::candidate_names();
    return cache_path(fmt::format("kernels_{:08x}.txt", uint32_t(XXH3_64bits(names.data(), names.size()))));
}

static std::string decide(const Config& cfg, const Walk& step, size_t scratch, const Heartbeat& heartbeat) {
    const std::string path = cfg.run.dir + "/kernels.txt", saved = text_of(path);
    ops::use_choices(saved);
    if (ops::tuned(step)) return ops::choices();
    const std::string others = shared_choices(), known = others.empty() ? "" : text_of(others);
    ops::use_choices(known);
    ops::use_choices(saved);
    if (!ops::tuned(step)) {
        with_memory(scratch, ops::tuning_bytes(step), [&](void* memory) {
            ops::tune(step, memory, heartbeat);
        });
        // where the file cannot be written, other runs time for themselves
        if (!others.empty()) (void)try_keep(others, ops::choices(known));
    }
    make_directories(cfg.run.dir);
    write_file(path, ops::choices(saved));
    return ops::choices();
}

void choose_kernels(const Config& cfg, const Model& model) {
    if (!model.tuning_bytes) return;
    const Axis& world = model.mesh.world;
    std::string text;
    run_on_rank_0(world, [&](const Heartbeat& heartbeat) {
        text = decide(cfg, model.step, model.scratch_bytes, heartbeat);
    });
    take_from_rank_0(world, text);
    if (model.mesh.rank != 0) ops::use_choices(text);
    comm::idle_barrier();
    with_memory(model.scratch_bytes, ops::tuning_bytes(model.step),
                [&](void* memory) { ops::check_choices(model.step, memory); });
    comm::idle_barrier();
}

}  // namespace PRECISION::runs
