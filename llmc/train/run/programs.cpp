#include "llmc/train/run/programs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "llmc/base/console.h"
#include "llmc/base/json.h"
#include "llmc/base/terminal.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/io/text/chat.h"
#include "llmc/comm/transport/launch.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/run/model.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/run/score_tasks.h"
#include "llmc/train/save/adopt.h"
#include "llmc/train/save/resume.h"

namespace PRECISION {

// The weights of a program: model.init if set, else the newest checkpoint of run.dir. Takes over the model's
// shape, and the model's tokenizer if the settings name no tokenizer or the model is a checkpoint. unusable:
// the reason why the model's tokenizer cannot be used; empty: usable.
static std::string weights_of(Config& cfg, const Axis& world, const char* flag, std::string* unusable) {
    const bool newest = starts_random(cfg.model.init);
    const std::string init = newest ? newest_checkpoint(cfg.run.dir, world) : cfg.model.init;
    CHECK_INPUT(!init.empty(), "{}: run.dir '{}' holds no checkpoint (step_N); train first, or name a folder "
                "by --model.init=DIR", flag, cfg.run.dir);
    if (!newest && !is_foreign(init)) (void)open_init(init, world);       // refuses a damaged one
    const ReadModel model = model_of(init);
    adopt_whole_model(cfg, model);
    if (!is_foreign(init) && !model.tokenizer.empty()) cfg.data.tokenizer.clear();
    *unusable = adopt_tokenizer(cfg, model);
    cfg.train = no_training(cfg.model.context);
    return init;
}

// The tokenizer of the settings. Ids beyond the tokenizer's were never trained; a tokenizer with ids beyond
// the model's belongs to another model.
static Tokenizer tokenizer_of(const Config& cfg, const std::string& init, const char* flag) {
    Tokenizer tokenizer = Tokenizer::load(cfg.data.tokenizer);
    const int ids = int(tokenizer.vocab_size());
    CHECK_INPUT(ids <= cfg.model.vocab, "{}: the model of {} has {} ids, the tokenizer {} {}{}: it is "
                "another's; give the model's own by --data.tokenizer=PATH", flag, init,
                cfg.model.vocab, cfg.data.tokenizer, ids, tokenizer.about_end());
    return tokenizer;
}

// The tokenizer of a program that cannot do without. unusable: of weights_of().
static Tokenizer needed_tokenizer(const Config& cfg, const std::string& init, const char* flag,
                                  const std::string& unusable) {
    CHECK_INPUT(!cfg.data.tokenizer.empty(), "{}: {}; give --data.tokenizer=PATH", flag,
                unusable.empty() ? init + " has no tokenizer.json" : unusable);
    return tokenizer_of(cfg, init, flag);
}

// Prints text as the model writes. A terminal gets whole characters, without control characters.
struct Shown {
    bool terminal;
    std::string rest = {};          // the beginning of a character

    void print(std::string_view more) {
        rest += more;
        const size_t whole = terminal && more != "\n" ? whole_characters(rest) : rest.size();
        const std::string text = terminal ? printable(rest.substr(0, whole)) : rest;
        fwrite(text.data(), 1, text.size(), stdout);
        fflush(stdout);
        rest.erase(0, whole);
    }
};

// A model that was tuned to answer continues a text less well.
static void print_on_chat(const Tokenizer& tokenizer) {
    if (tokenizer.vocabulary.chat_template.empty()) return;
    const std::string why = no_chat(tokenizer);
    if (why.empty()) fputs("note: this model answers messages: --chat makes the text one\n", stderr);
    else print(stderr, "note: the text is continued as it stands: {}\n", for_terminal(why));
}

// Continues the text, or answers it as a message.
int generate(Config cfg, const Mesh& mesh, const Prompt& prompt) {
    std::string unusable;
    const std::string init = weights_of(cfg, mesh.world, "--generate", &unusable);
    const Tokenizer tokenizer = needed_tokenizer(cfg, init, "--generate", unusable);
    const Chat message = prompt.chat ? chat_of(tokenizer, prompt.text, prompt.system)
                                     : Chat{prompt_ids(tokenizer, prompt.text), -1};
    if (!prompt.chat && mesh.rank == 0) print_on_chat(tokenizer);
    Model model(cfg, mesh, 1, true);
    model.allocate();
    Checkpoint(cfg, model.zero, model.votes, model.snapshot, {}).load_weights(init);
    Generator generator(cfg, mesh, *model.decoder, model.zero);
    Shown shown{.terminal = on_terminal(1)};
    const auto print = [&](std::string_view more) {
        if (mesh.rank == 0) shown.print(more);
    };
    if (!prompt.chat) print(prompt.text);
    generator.turn_end = message.end;
    generator.run(tokenizer, message.ids, 0, print);
    print("\n");
    return kExitDone;
}

// Scores eval.tasks: rows in run.dir/evals.jsonl, and a table.
int evaluate(Config cfg, const Mesh& mesh) {
    std::string unusable;
    const std::string init = weights_of(cfg, mesh.world, "--evaluate", &unusable);
    const Tokenizer tokenizer = needed_tokenizer(cfg, init, "--evaluate", unusable);
    const auto tasks = on_rank_0_first(mesh.world, [&] { return load_tasks(cfg, tokenizer); });
    const int64_t step = is_foreign(init) ? 0 : open_checkpoint(init).manifest.step;
    Model model(cfg, mesh, 1, false);
    model.allocate();
    Checkpoint(cfg, model.zero, model.votes, model.snapshot, {}).load_weights(init);
    phase(Phase::Evaluate, step);
    std::vector<TaskResult> results;
    for (const LoadedTask& task : tasks) {
        const auto scored = score_task(task, *model.scorer, model.zero, mesh);
        if (!scored) break;
        results.push_back(scored->result);
        if (mesh.rank == 0) write_result(cfg.run.dir, step, scored->result, scored->answers);
    }
    if (results.empty() || mesh.rank != 0) return kExitDone;
    print("{} at step {}\n\n{}{}", for_terminal(init), grouped(step), table_of_results(results),
          published_scores(tasks, beside_program("scripts/references.json")));
    return kExitDone;
}

// Logits after a few tokens, for the comparison of two models.
static std::vector<double> some_logits(Model& model, const Config& cfg) {
    const int count = std::min(model.decoder->own.rows, cfg.model.context);
    std::vector<int32_t> ids;
    for (int i = 0; i < count; i++) ids.push_back(int32_t((int64_t(i) * 7919 + 5) % cfg.model.vocab));
    model.zero.begin_step(blocks_of(model.gpt.part));
    const auto row = model.decoder->on_host(model.decoder->forward(model.zero, ids.data(), count, 0, 0));
    return {row.begin(), row.end()};
}

static std::vector<float> whole_tensor(const Zero& zero, const Tensor& t) {
    std::vector<real> values(t.param.whole());
    for (size_t at = 0; at < values.size(); at += Zero::kExport)
        zero.export_tensor(t, at, std::min(Zero::kExport, values.size() - at), values.data() + at);
    return {values.begin(), values.end()};
}

// The weights become those that the export holds.
static void round_as_exported(Zero& zero, const std::string& to) {
    const auto round = format_of(to)->round;
    for (const Tensor& t : zero.layout.tensors) {
        std::vector<float> values = round ? whole_tensor(zero, t) : std::vector<float>();
        if (!round || !round(path_of(to), t, values)) return;
        const std::vector<real> rounded(values.begin(), values.end());
        zero.import_tensor(t, 0, rounded.size(), rounded.data());
    }
}

void check_export(const Config& cfg, const Mesh& mesh, Model& model, const std::string& to) {
    round_as_exported(model.zero, to);
    const std::vector<double> own = some_logits(model, cfg);
    Model again(cfg, mesh, 1, true);
    again.allocate();
    const ForeignModel foreign = open_foreign(to);
    import_weights(again.zero, foreign);
    const std::vector<double> theirs = some_logits(again, cfg);
    double largest = 0, apart = 0;
    bool finite = true;
    for (size_t i = 0; i < own.size(); i++) {
        largest = std::max(largest, std::abs(own[i]));
        apart = std::max(apart, std::abs(own[i] - theirs[i]));
        finite &= std::isfinite(own[i] - theirs[i]);
    }
    CHECK(head_is_embedding(foreign, again.zero.layout.tensors.front()), "--export: read back from {}, the "
          "copy of wte that others take for the head is not wte", to);
    CHECK(finite && apart <= 1e-5 * largest, "--export: read back from {}, its logits are {}{:g} apart from "
          "the model's, of {:g} at most", to, finite ? "" : "not finite, and ", apart, largest);
}

int export_model(Config cfg, const Mesh& mesh, const std::string& to, bool overwrite) {
    CHECK_INPUT(mesh.world.size == 1, "--export: one rank does it; start it without mpirun");
    std::string unusable;
    const std::string init = weights_of(cfg, mesh.world, "--export", &unusable);
    if (!unusable.empty()) warning("{}; the export has none", unusable);
    std::optional<Tokenizer> tokenizer;
    if (!cfg.data.tokenizer.empty()) tokenizer = tokenizer_of(cfg, init, "--export");
    check_export_kind(to, cfg.model);
    const bool replaces = replaces_export(to, cfg.model, overwrite);
    Model model(cfg, mesh, 1, true);
    model.allocate();
    Checkpoint(cfg, model.zero, model.votes, model.snapshot, {}).load_weights(init);
    const auto read = [&](const Tensor& t) { return whole_tensor(model.zero, t); };
    const OwnModel own{.shape = cfg.model, .layout = model.zero.layout, .read = read,
                       .tokenizer = tokenizer ? &*tokenizer : nullptr, .bf16 = sizeof(floatX) == 2};
    export_to(own, to, [&](const std::string& copy) { check_export(cfg, mesh, model, copy); });
    print("exported {} to {}{}; read back, it computes the same\n", for_terminal(init),
          for_terminal(path_of(to)), replaces ? ", replacing what was there" : "");
    return kExitDone;
}

}  // namespace PRECISION
