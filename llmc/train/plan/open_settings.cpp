// What of train/plan/planned.h depends on no precision.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/plan/planned.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/save/resume.h"

inline namespace plans {

void take_open_settings(Config& cfg) {
    adopt_open_settings(cfg, foresee_origin(cfg).origin, false);
    std::optional<Tokenizer> tokenizer;
    if (!cfg.model.vocab && !cfg.data.tokenizer.empty()) tokenizer = Tokenizer::load(cfg.data.tokenizer);
    cfg.model.vocab = vocab_of(cfg, tokenizer);
    if (!cfg.model.vocab) cfg.model.vocab = open_run_data(cfg).vocab;
}

void check_steps(const Config& cfg) {
    CHECK_INPUT(!cfg.cluster.named() || cfg.train.steps > 0,
                "train.steps = 0: cluster.* asks for the time of training steps; set train.steps above 0, or "
                "leave out cluster.gpu and cluster.file: --plan then prints the memory alone");
}

int ranks_to_plan(const Config& cfg) {
    const ParallelConfig& p = cfg.parallel;
    return std::max({planned_ranks(p), launcher().world, model_ranks(p)});
}

}  // namespace plans
