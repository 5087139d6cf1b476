#include "llmc/train/save/adopt.h"

#include <algorithm>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/resume.h"

inline namespace saves {

ReadModel model_of(const std::string& init, Opens opens) {
    if (is_foreign(init)) {
        const ForeignModel m = open_foreign(init, opens);
        return {init, m.shape, m.tokenizer};
    }
    const std::string tokenizer = init + "/tokenizer.json";
    return {init, open_head(init).settings.model, file_exists(tokenizer) ? tokenizer : ""};
}

// Calls f(own, theirs) for each setting of a model but those of its training.
template <class F> static void each_of_shape(Config& cfg, const ModelConfig& shape, F&& f) {
    Config other;
    other.model = shape;
    const std::vector<Field> own = fields(cfg), theirs = fields(other);
    for (size_t i = 0; i < own.size(); i++)
        if (own[i].section == "model" && !is_of_training(own[i].key))
            f(own[i], theirs[i]);
}

// model.vocab = 0 leaves the vocabulary open.
static bool is_open(const Config& cfg, const Field& f) {
    const bool named = std::find(cfg.named.begin(), cfg.named.end(), f.path()) != cfg.named.end();
    return !named || (f.key == "vocab" && cfg.model.vocab == 0);
}

static void fill_shape(Config& cfg, const ModelConfig& shape) {
    each_of_shape(cfg, shape, [&](const Field& own, const Field& theirs) {
        if (!is_open(cfg, own)) return;
        std::visit([&](auto* value) { *value = *std::get<decltype(value)>(theirs.value); }, own.value);
    });
}

// Rotary positions have no end, and their rotation may be slowed down for a longer context.
static bool may_change(const ReadModel& model, const std::string& key) {
    const bool rotates = key == "context" || key == "rope_scaling" || key == "rope_theta";
    return rotates && model.shape.position == PositionKind::Rope;
}

// The context may be shorter: later positions are left out.
static bool is_shorter(const Config& cfg, const ReadModel& model, const std::string& key) {
    return key == "context" && cfg.model.context <= model.shape.context;
}

static void check_shape(const Config& cfg, const ReadModel& model, bool warns) {
    Config sized = cfg;
    sized.model = with_sizes(cfg.model);
    std::string others;
    each_of_shape(sized, with_sizes(model.shape), [&](const Field& own, const Field& theirs) {
        const std::string path = own.path(), here = value_json(own.value), there = value_json(theirs.value);
        if (here == there || is_shorter(cfg, model, own.key)) return;
        CHECK_INPUT(own.key != "context" || may_change(model, own.key), "{} = {}, but the model of "
                    "model.init = '{}' has learned {} positions; set it to at most that", path, here,
                    model.from, there);
        CHECK_INPUT(may_change(model, own.key), "{} = {}, but the model of model.init = '{}' has {}; set {} "
                    "to {}, or leave it out", path, here, model.from, there, path, there);
        others += fmt::format("{}{} = {}, not {}", others.empty() ? "" : ", ", path, here, there);
    });
    if (warns && !others.empty())
        warning("other positions than those of the model of model.init = '{}': {}; it computes less well "
                "until it is trained with them", model.from, others);
}

// The reason why a file is no tokenizer for a model of vocab ids; empty: usable.
static std::string wrong_tokenizer(const std::string& path, int vocab) {
    const bool before = std::exchange(context.throw_on_fatal, true);
    std::string why;
    try {
        const Tokenizer tokenizer = Tokenizer::load(path);
        const int ids = int(tokenizer.vocab_size());
        if (ids > vocab)
            why = fmt::format("{}: {} ids{}, but the model has {}", path, ids, tokenizer.about_end(), vocab);
    } catch (const Fatal& e) {
        why = e.what();
    }
    context.throw_on_fatal = before;
    return why.substr(0, why.find('\n'));
}

std::string adopt_tokenizer(Config& cfg, const ReadModel& model) {
    if (!cfg.data.tokenizer.empty() || model.tokenizer.empty()) return "";
    const std::string why = wrong_tokenizer(model.tokenizer, model.shape.vocab);
    if (!why.empty()) return fmt::format("{} has no tokenizer that can be used: {}", model.from, why);
    cfg.data.tokenizer = model.tokenizer;
    return "";
}

// Without a tokenizer: switches tasks off in the settings, and warns that there are no texts either.
static void warn_of_no_text(Config& cfg, const std::string& why, bool warns) {
    const bool scores = !cfg.eval.tasks.empty();
    cfg.eval.tasks.clear();
    if (warns)
        warning("{}; the run writes no text, and no bits per byte{}", why,
                scores ? ", and scores no eval.tasks" : "");
}

// Whether a run goes on that began with the weights of an import, and without a tokenizer.
static bool goes_on_without_text(const Config& cfg, const Foreseen& saved) {
    return saved.origin && is_foreign(cfg.model.init) && cfg.data.tokenizer.empty() &&
           saved.origin->settings.data.tokenizer.empty();
}

void adopt_open_model(Config& cfg, bool warns, Opens opens) {
    const std::string& init = cfg.model.init;
    if (cfg.run.dir.empty() || init.empty()) return;                // validate() refuses both
    const Foreseen saved = foresee_origin(cfg);
    const int vocab = cfg.model.vocab;
    if (saved.origin) fill_shape(cfg, saved.origin->settings.model);
    cfg.model.vocab = vocab;            // adopt_open_settings() sets it: all hosts may not see run.dir
    if (!cfg.eval.tasks.empty() && goes_on_without_text(cfg, saved))
        warn_of_no_text(cfg, saved.origin->folder + " has no tokenizer", warns);
    if (saved.any || starts_random(init)) return;
    const ReadModel model = model_of(init, opens);
    fill_shape(cfg, model.shape);
    check_shape(cfg, model, warns);
    if (!is_foreign(init)) return;
    const std::string unusable = adopt_tokenizer(cfg, model);
    if (!unusable.empty()) warn_of_no_text(cfg, unusable, warns);
}

TrainConfig no_training(int64_t batch_tokens) {
    return {.steps = 0, .batch_tokens = batch_tokens, .micro_batch = 1, .max_skips = 0};
}

void adopt_whole_model(Config& cfg, const ReadModel& model) {
    cfg.model = model.shape;
    cfg.model.init = model.from;
}

}  // namespace saves
