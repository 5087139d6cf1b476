#include "llmc/train/run/programs.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "llmc/base/console.h"
#include "llmc/base/terminal.h"
#include "llmc/base/guard/launcher.h"
#include "llmc/base/guard/wait.h"
#include "llmc/io/text/chat.h"
#include "llmc/comm/launch/launch.h"
#include "llmc/train/save/checkpoint.h"
#include "llmc/train/run/run_memory.h"
#include "llmc/train/run/run_data.h"
#include "llmc/train/save/adopt.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/score/results.h"
#include "llmc/train/score/scores.h"

namespace PRECISION::inline runs {

// The weights of a program. `held` keeps a run from pruning the checkpoint until this program ends.
struct Weights {
    HeldCheckpoint held;
    std::string init = held.folder;
    std::string unusable = {};          // why the model's tokenizer cannot be used; empty: usable
};

// model.init if set, else the newest checkpoint of run.dir. Takes over the model's shape, and the model's
// tokenizer if the settings name no tokenizer or the model is a checkpoint.
static Weights weights_of(Config& cfg, const Axis& world, const char* flag) {
    const bool newest = starts_random(cfg.model.init);
    Weights w{newest ? newest_checkpoint(cfg.run.dir, world) : hold_checkpoint(cfg.model.init)};
    CHECK_INPUT(!w.init.empty(), "{}: run.dir '{}' holds no checkpoint (step_N); train first, or name a "
                "folder by --model.init=DIR", flag, cfg.run.dir);
    const bool foreign = is_foreign(w.init);
    if (!foreign) verify_init(w.init, world, posix_disk(), newest ? Check::Sizes : Check::Hashes);
    const ReadModel model = model_of(w.init);
    adopt_whole_model(cfg, model);
    if (!foreign && !model.tokenizer.empty()) cfg.data.tokenizer.clear();
    w.unusable = adopt_tokenizer(cfg, model);
    cfg.train = no_training(cfg.model.context);
    return w;
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

// The tokenizer of a program that cannot do without.
static Tokenizer needed_tokenizer(const Config& cfg, const Weights& w, const char* flag) {
    CHECK_INPUT(!cfg.data.tokenizer.empty(), "{}: {}; give --data.tokenizer=PATH", flag,
                w.unusable.empty() ? w.init + " has no tokenizer.json" : w.unusable);
    return tokenizer_of(cfg, w.init, flag);
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

// All of standard input. Beats while no input is there.
static std::string standard_input() {
    std::string text;
    for (bool more = true; more;) {
        pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
        wait_for_files({.what = "standard input", .on = Awaits::Own, .nap = 0.1, .beats = true}, &input, 1);
        char some[4096];
        const ssize_t n = read(0, some, sizeof some);
        CHECK_INPUT(n >= 0 || errno == EINTR, "--generate=-: standard input: {}", strerror(errno));
        CHECK_INPUT(text.size() < kMostRead, "--generate=-: more than {} bytes", kMostRead);
        text.append(some, size_t(std::max<ssize_t>(n, 0)));
        more = n != 0;
    }
    return text;
}

// The text of --generate; of "-" standard input, which rank 0 reads.
static std::string text_of(const Prompt& prompt, const Axis& world) {
    if (prompt.text != "-") return prompt.text;
    std::string text;
    if (world.index == 0 && on_terminal(0)) fputs("note: type the text, and end it with ^D\n", stderr);
    run_on_rank_0(world, [&](const Heartbeat&) { text = standard_input(); });
    take_from_rank_0(world, text);
    if (text.ends_with('\n')) text.pop_back();
    return text;
}

// Continues the text, or answers it as a message.
int generate(Config cfg, const Mesh& mesh, const Prompt& prompt) {
    const Weights weights = weights_of(cfg, mesh.world, "--generate");
    const Tokenizer tokenizer = needed_tokenizer(cfg, weights, "--generate");
    const std::string given = text_of(prompt, mesh.world);
    const Chat message = prompt.chat ? chat_of(tokenizer, given, prompt.system)
                                     : Chat{prompt_ids(tokenizer, given), -1};
    if (!prompt.chat && mesh.rank == 0) print_on_chat(tokenizer);
    Model model(cfg, mesh, 1, true);
    model.allocate();
    load_weights(model.shards, weights.init);
    Generator generator(cfg, mesh, *model.decoder, model.zero);
    Shown shown{.terminal = on_terminal(1)};
    const auto print = [&](std::string_view more) {
        if (mesh.rank == 0) shown.print(more);
    };
    if (!prompt.chat) print(given);
    generator.turn_end = message.end;
    generator.run(tokenizer, message.ids, 0, print);
    print("\n");
    return kExitDone;
}

// Of all of data.val: loss, perplexity and bits per byte, a row in run.dir/evals.jsonl and a table. Returns
// false where a signal interrupted it.
static bool evaluate_loss(Config cfg, const Mesh& mesh, const std::string& init, int64_t step) {
    constexpr uint64_t kRows = 16;              // of a rank at once, at most
    cfg.eval.every = 1;
    cfg.eval.batches = 0;
    cfg.eval.tasks.clear();
    const RunData data = open_run_data(cfg, mesh.world);
    const size_t room = available_to_rank(mesh, cfg.memory);
    const auto fits = [&](int micro) {
        cfg.train = no_training(int64_t(cfg.model.context) * mesh.dp.size * mesh.pp.size * micro);
        cfg.train.micro_batch = micro;
        return room == 0 || double(largest_plan(cfg, mesh, micro, false)) <= 0.9 * double(room);
    };
    const uint64_t dp = uint64_t(mesh.dp.size);
    int micro = int(std::min<uint64_t>(kRows, (data.val.rows() + dp - 1) / dp));
    while (!fits(micro) && micro > 1) micro /= 2;
    Model model(cfg, mesh, micro, false);
    model.allocate();
    load_weights(model.shards, init);
    phase(Phase::Evaluate, step);
    const auto e = model.pipeline.evaluate(data.val, 0, data.bytes);
    if (e && mesh.rank == 0)
        write_loss(cfg.run.dir, step, {e->loss, e->bits_per_byte, int64_t(data.val.rows()) * data.val.T});
    return e.has_value();
}

// Scores eval.tasks: rows in run.dir/evals.jsonl, and a table. The name "loss" is evaluate_loss().
int evaluate(Config cfg, const Mesh& mesh) {
    const Weights weights = weights_of(cfg, mesh.world, "--evaluate");
    const std::string& init = weights.init;
    const int64_t step = is_foreign(init) ? 0 : open_head(init).manifest.step;
    if (mesh.rank == 0) print("{} at step {}\n\n", for_terminal(init), grouped(step));
    const bool loss = std::erase(cfg.eval.tasks, "loss") > 0;
    if (loss && !evaluate_loss(cfg, mesh, init, step)) return kExitDone;
    if (cfg.eval.tasks.empty()) return kExitDone;
    const Tokenizer tokenizer = needed_tokenizer(cfg, weights, "--evaluate");
    const auto tasks = on_rank_0_first(mesh.world, [&] { return load_tasks(cfg, tokenizer); });
    Model model(cfg, mesh, 1, false);
    model.allocate();
    load_weights(model.shards, init);
    phase(Phase::Evaluate, step);
    std::vector<TaskResult> results;
    for (const EvalTask& task : tasks) {
        const auto scored = score_task(task, *model.scorer, model.zero, mesh);
        if (!scored) break;
        results.push_back(scored->result);
        if (mesh.rank == 0) write_result(cfg.run.dir, step, *scored);
    }
    if (results.empty() || mesh.rank != 0) return kExitDone;
    print("{}{}", table_of_results(results),
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

// The weights become those that the export holds.
static void round_as_exported(Shards& shards, const std::string& to) {
    const auto round = format_of(to)->round;
    if (!round) return;
    for (const Tensor& t : shards.layout.tensors) {
        std::vector<float> values = whole_in_fp32(shards, t);
        if (!round(path_of(to), t, values)) return;
        set_tensor(shards, t, {values.begin(), values.end()});
    }
}

void check_export(const Config& cfg, const Mesh& mesh, Model& model, const std::string& to) {
    round_as_exported(model.shards, to);
    const std::vector<double> own = some_logits(model, cfg);
    Model again(cfg, mesh, 1, true);
    again.allocate();
    const ForeignModel foreign = open_foreign(to);
    restore(again.shards, foreign_weights(foreign));
    const std::vector<double> theirs = some_logits(again, cfg);
    double largest = 0, apart = 0;
    bool finite = true;
    for (size_t i = 0; i < own.size(); i++) {
        largest = std::max(largest, std::abs(own[i]));
        apart = std::max(apart, std::abs(own[i] - theirs[i]));
        finite &= std::isfinite(own[i] - theirs[i]);
    }
    CHECK(head_is_embedding(foreign, again.shards.layout.tensors.front()), "--export: read back from {}, the "
          "copy of wte that others take for the head is not wte", to);
    CHECK(finite && apart <= 1e-5 * largest, "--export: read back from {}, its logits are {}{:g} apart from "
          "the model's, of {:g} at most", to, finite ? "" : "not finite, and ", apart, largest);
}

int export_model(Config cfg, const Mesh& mesh, const std::string& to, bool overwrite) {
    CHECK_INPUT(mesh.world.size == 1, "--export: one rank does it; start it without mpirun");
    const Weights weights = weights_of(cfg, mesh.world, "--export");
    if (!weights.unusable.empty()) warning("{}; the export has none", weights.unusable);
    std::optional<Tokenizer> tokenizer;
    if (!cfg.data.tokenizer.empty()) tokenizer = tokenizer_of(cfg, weights.init, "--export");
    check_export_kind(to, cfg.model);
    const bool replaces = replaces_export(to, cfg.model, overwrite);
    Model model(cfg, mesh, 1, true);
    model.allocate();
    load_weights(model.shards, weights.init);
    const auto read = [&](const Tensor& t) { return whole_in_fp32(model.shards, t); };
    const OwnModel own{.shape = cfg.model, .layout = model.shards.layout, .read = read,
                       .tokenizer = tokenizer ? &*tokenizer : nullptr, .bf16 = sizeof(floatX) == 2};
    export_to(own, to, [&](const std::string& copy) { check_export(cfg, mesh, model, copy); });
    print("exported {} to {}{}; read back, it computes the same\n", for_terminal(weights.init),
          for_terminal(path_of(to)), replaces ? ", replacing what was there" : "");
    return kExitDone;
}

}  // namespace PRECISION::runs
