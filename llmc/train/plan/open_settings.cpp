// What of train/plan/planned.h depends on no precision.
#include <algorithm>

#include "llmc/base/guard/launcher.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/save/resume.h"

void take_open_settings(Config& cfg) {
    adopt_open_settings(cfg, foresee_origin(cfg).origin, false);
    std::optional<Tokenizer> tokenizer;
    if (!cfg.model.vocab && !cfg.data.tokenizer.empty()) tokenizer = Tokenizer::load(cfg.data.tokenizer);
    cfg.model.vocab = vocab_of(cfg, tokenizer);
    if (!cfg.model.vocab) cfg.model.vocab = open_run_data(cfg).vocab;
}

int ranks_to_plan(const Config& cfg) {
    const ParallelConfig& p = cfg.parallel;
    return std::max({planned_ranks(p), launcher().world, p.tp * p.pp});
}
