#include "llmc/train/step/stage.h"

#include <algorithm>

#include "llmc/base/check.h"

// An interleaved pipeline takes micro-batches in groups of as many as there are stages.
static int64_t group_of(const Config& cfg) {
    return cfg.parallel.virtual_stages > 1 ? int64_t(cfg.parallel.pp) : 1;
}

bool micro_batch_divides(const Config& cfg, const Mesh& mesh, int micro_batch) {
    const int64_t rows = cfg.train.batch_tokens / cfg.model.context;
    return rows % (int64_t(mesh.dp.size) * micro_batch * group_of(cfg)) == 0;
}

int micros_of(const Config& cfg, const Mesh& mesh, int micro_batch) {
    const int64_t T = cfg.model.context, dp = mesh.dp.size, group = group_of(cfg);
    const int64_t unit = T * dp * micro_batch * group, below = cfg.train.batch_tokens / unit * unit;
    const std::string groups = group > 1 ? strf(" x parallel.pp = %lld", (long long)group) : "";
    CHECK_INPUT(micro_batch_divides(cfg, mesh, micro_batch) && below == cfg.train.batch_tokens,
                "train.batch_tokens = %lld is no multiple of model.context = %lld x train.micro_batch = %d x "
                "%lld data-parallel ranks%s: the nearest are %lld and %lld",
                (long long)cfg.train.batch_tokens,
                (long long)T, micro_batch, (long long)dp, groups.c_str(), (long long)(below ? below : unit),
                (long long)(below + unit));
    return int(cfg.train.batch_tokens / T / dp / micro_batch);
}

Stage make_stage(const Config& cfg, const Mesh& mesh, int micro_batch) {
    const bool trains = cfg.train.steps > 0;
    Stage s{.shape = {.stages = mesh.pp.size, .chunks = mesh.pp.size > 1 ? cfg.parallel.virtual_stages : 1,
                      .micros = trains ? micros_of(cfg, mesh, micro_batch) : 0},
            .index = mesh.pp.index, .actions = {}, .slots = {}};
    if (trains) s.actions = pipeline_schedule(s.shape, s.index);
    for (int c = 0; c < s.shape.chunks; c++) s.slots.push_back(std::max(1, live_micros(s.actions, c)));
    return s;
}
