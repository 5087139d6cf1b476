#include "llmc/train/step/stage.h"

#include <algorithm>

#include "llmc/base/check.h"

inline namespace step {

int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch) {
    check_batch(cfg, mesh.dp.size, micro_batch);
    return int(rows_of_step(cfg, mesh.dp.size) / micro_batch);
}

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch) {
    const bool trains = cfg.train.steps > 0;
    Stage s{.shape = {.stages = mesh.pp.size, .chunks = mesh.pp.size > 1 ? cfg.parallel.virtual_stages : 1,
                      .micros = trains ? micros_of(cfg, mesh, micro_batch) : 0,
                      .schedule = cfg.parallel.schedule},
            .index = mesh.pp.index, .actions = {}, .buffers = {}};
    if (trains) s.actions = pipeline_schedule(s.shape, s.index);
    for (int c = 0; c < s.shape.chunks; c++) s.buffers.push_back(std::max(1, live_micros(s.actions, c)));
    return s;
}

Part make_part(int L, int stage, int stages, int chunks) {
    const int all = stages * chunks;
    CHECK(all <= L, "{} stages of {} chunks for {} blocks", stages, chunks, L);
    Part part{.layers = {}, .chunks = {}, .first = stage == 0, .last = stage == stages - 1};
    for (int c = 0; c < chunks; c++) {
        const int number = c * stages + stage;
        const Interval blocks = part_of({0, size_t(L)}, size_t(number), size_t(all));
        const int begin = int(part.layers.size());
        for (size_t l = blocks.begin; l < blocks.end(); l++) part.layers.push_back(int(l));
        part.chunks.push_back({.begin = begin, .end = int(part.layers.size()),
                               .embeds = number == 0, .ends = number == all - 1});
    }
    return part;
}

}  // namespace step
