#include "llmc/train/programs.h"

#include <cstdio>

#include "llmc/train/checkpoint.h"
#include "llmc/train/model.h"
#include "llmc/train/run_data.h"
#include "llmc/train/run_folder.h"

namespace PRECISION {

// Prints the memory plan and the resolved config; allocates nothing and starts nothing.
int plan(Config cfg) {
    std::optional<Tokenizer> tokenizer;
    if (!cfg.model.vocab && !cfg.data.tokenizer.empty()) tokenizer = Tokenizer::load(cfg.data.tokenizer);
    cfg.model.vocab = vocab_of(cfg, tokenizer);
    if (!cfg.model.vocab) cfg.model.vocab = open_run_data(cfg).vocab;
    const Mesh mesh;
    const Dims d = dims_of(cfg, cfg.model.vocab);
    const bool samples = cfg.sample.every > 0 && !cfg.data.tokenizer.empty();
    cfg.train.micro_batch = choose_micro_batch(cfg, d, mesh, samples);
    const Model model(cfg, d, mesh, cfg.train.micro_batch, samples);
    printf("%s\n%s\n", plan_text(cfg, model).c_str(), to_json(cfg).c_str());
    return kExitDone;
}

// Continues the text with the newest checkpoint of run.dir, or the one that model.init names.
int generate(Config cfg, const std::string& prompt) {
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

    const Mesh mesh;
    Model model(cfg, dims_of(cfg, cfg.model.vocab), mesh, 1, true);
    model.allocate();
    Checkpoint{cfg, model, ""}.load(dir);
    Generator generator(cfg, *model.decoder, model.zero, tokenizer);
    fputs(prompt.c_str(), stdout);
    generator.run(prompt, 0, [](std::string_view piece) {
        fwrite(piece.data(), 1, piece.size(), stdout);
        fflush(stdout);
    });
    putchar('\n');
    return kExitDone;
}

}  // namespace PRECISION
