#include "llmc/train/step/stage.h"

#include <algorithm>

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
