#include "llmc/train/programs.h"

#include <algorithm>
#include <cstdio>

#include "llmc/comm/launch.h"
#include "llmc/train/checkpoint.h"
#include "llmc/train/model.h"
#include "llmc/train/run_data.h"
#include "llmc/train/run_folder.h"

namespace PRECISION {

// Prints the memory plan of the rank that needs most, and the resolved config; allocates nothing and starts
// nothing.
int plan(Config cfg) {
    std::optional<Tokenizer> tokenizer;
    if (!cfg.model.vocab && !cfg.data.tokenizer.empty()) tokenizer = Tokenizer::load(cfg.data.tokenizer);
    cfg.model.vocab = vocab_of(cfg, tokenizer);
    if (!cfg.model.vocab) cfg.model.vocab = open_run_data(cfg).vocab;
    const bool samples = cfg.sample.every > 0 && !cfg.data.tokenizer.empty();

    const ParallelConfig& p = cfg.parallel;
    const int ranks = std::max(planned_ranks(p), p.tp * p.pp);
    check_mesh(cfg, ranks);
    if (!cfg.run.threads) cfg.run.threads = std::max(1, cores() / ranks);
    const auto rank = described_mesh(p, ranks, 0);
    cfg.train.micro_batch = choose_micro_batch(cfg, rank->mesh, samples, available_to_rank(rank->mesh));
    std::string text;
    size_t most = 0;
    for (int stage = 0; stage < p.pp; stage++) {        // ranks of different stages differ, no others
        const auto other = described_mesh(p, ranks, stage * p.tp);
        const Model model(cfg, other->mesh, cfg.train.micro_batch, samples);
        if (model.bytes() <= most) continue;
        most = model.bytes();
        text = plan_text(cfg, model);
    }
    printf("%s\n%s\n", text.c_str(), to_json(cfg).c_str());
    return kExitDone;
}

// Continues the text with the newest checkpoint of run.dir, or the one that model.init names.
int generate(Config cfg, const Mesh& mesh, const std::string& prompt) {
    const std::string dir = cfg.model.init == "random" ? newest_checkpoint(cfg.run.dir) : cfg.model.init;
    CHECK_INPUT(!dir.empty(), "--generate: run.dir '%s' holds no checkpoint (step_N); train first, or name a "
                "folder by --model.init=DIR", cfg.run.dir.c_str());
    check_init(dir);
    const Config saved = load_config(dir + "/config.json");
    const std::string own = dir + "/tokenizer.json";
    CHECK_INPUT(file_exists(own) || !cfg.data.tokenizer.empty(),
                "--generate: %s has no tokenizer.json; give --data.tokenizer=PATH", dir.c_str());
    const Tokenizer tokenizer = Tokenizer::load(file_exists(own) ? own : cfg.data.tokenizer);
    cfg.model = saved.model;
    cfg.train = {.steps = 0, .batch_tokens = cfg.model.context, .micro_batch = 1, .max_skips = 0};

    Model model(cfg, mesh, 1, true);
    model.allocate();
    Checkpoint{cfg, model, ""}.load(dir);
    Generator generator(cfg, mesh, *model.decoder, model.zero, tokenizer);
    const auto print = [&](std::string_view piece) {
        if (mesh.rank > 0) return;
        fwrite(piece.data(), 1, piece.size(), stdout);
        fflush(stdout);
    };
    print(prompt);
    generator.run(prompt, 0, print);
    print("\n");
    return kExitDone;
}

}  // namespace PRECISION
