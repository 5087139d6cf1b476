#include "llmc/train/explore/explore_service.h"

#include <algorithm>
#include <map>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/config/options.h"
#include "llmc/base/config/sharding.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/train/explore/address_settings.h"
#include "llmc/train/explore/drawing.h"
#include "llmc/train/explore/presets.h"
#include "llmc/train/plan/print.h"
#include "llmc/train/serve/serve.h"

inline namespace explorer {

static constexpr int kSearchSeconds = 20;

// An error ends its request, not the program.
struct ErrorsThrown {
    const bool before = context.throw_on_fatal;
    ErrorsThrown() { context.throw_on_fatal = true; }
    ~ErrorsThrown() { context.throw_on_fatal = before; }
};

static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// The last value of a key counts.
static Json json_of_settings(const Settings& settings) {
    std::map<std::string, std::string> last;
    for (const auto& [key, value] : settings) last[key] = value;
    return Json::Members(last.begin(), last.end());
}

// ---------------------------------------------------------------------------------------------------------
// plans

struct Asked {
    Config cfg;
    Planner planner;
};

static Asked asked_of(const Exploration& e, const HttpRequest& request) {
    Asked asked = {.cfg = config_of(e.base, request), .planner = {}};
    CHECK_INPUT(!asked.cfg.cluster.measured(), "cluster.gpu = auto: this page measures no machine; name one "
                "of {}", machine_names());
    asked.planner = e.planner_of(asked.cfg);
    return asked;
}

Json ExploreService::plan(const HttpRequest& request) {
    const auto [cfg, planner] = asked_of(exploration, request);
    const Planned p = planner.planned(cfg);
    return json_of(p.estimate, p.machine.has_value());
}

// Plans with times.
static Planned timed(const Planner& planner, const Config& cfg) {
    CHECK_INPUT(cfg.cluster.named(), "cluster.gpu is not set: name the GPU whose time is planned, one of {}",
                machine_names());
    return planner.planned(cfg);
}

static std::string command_of(const Exploration& e, const HttpRequest& request) {
    std::string command = e.command;
    for (const auto& [key, value] : settings_in(request))
        command += fmt::format(" --{}={}", key, for_shell(value));
    return command + " --plan";
}

// The plan with each ZeRO stage, all with its micro-batch.
static Json zero_stages(const Planner& planner, const Planned& p) {
    Json::List plans;
    for (int zero = 0; zero < int(std::size(kZeroStages)); zero++) {
        Config cfg = p.estimate.cfg;
        cfg.parallel.zero = zero;
        const Estimate e = zero == p.estimate.cfg.parallel.zero
                               ? p.estimate
                               : planner.estimate(cfg, p.estimate.ranks, *p.machine);
        plans.push_back(json_of(e, true));
    }
    return plans;
}

static Json json_of(const StepTime& step) {
    return Json::Members{{"products", step.by_kind.products}, {"attention", step.by_kind.attention},
                         {"other", step.by_kind.memory},      {"exposed", step.by_kind.exposed},
                         {"bubble", step.bubble},             {"hidden", step.by_kind.hidden}};
}

Json ExploreService::detail(const HttpRequest& request) {
    const auto [cfg, planner] = asked_of(exploration, request);
    const Planned p = timed(planner, cfg);
    const Estimate& e = p.estimate;
    const RunCost run = cost_of(e, *p.machine);
    const Json::Members cost = {
        {"steps", e.cfg.train.steps}, {"seconds", run.seconds}, {"kwh", run.kwh}, {"dollars", run.dollars}};
    return Json::Members{{"plan", json_of(e, true)},
                         {"config", parse_json(to_json(e.cfg))},
                         {"config_text", to_json(e.cfg)},
                         {"command", command_of(exploration, request)},
                         {"machine", json_of(*p.machine)},
                         {"run", cost},
                         {"step", json_of(e.step)},
                         {"zero", zero_stages(planner, p)},
                         {"drawing", json_of(planner.drawn_step(e.cfg, e.ranks, *p.machine))}};
}

// ---------------------------------------------------------------------------------------------------------
// other numbers of GPUs

// Powers of two times a model's ranks up to PlanLimits::kRanks, and `ranks` itself.
static std::vector<int> counts_of(const ParallelConfig& p, int ranks) {
    std::vector<int> counts = {ranks};
    for (int n = model_ranks(p); n <= PlanLimits::kRanks; n *= 2) counts.push_back(n);
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    return counts;
}

// Batch, tp, pp, ZeRO and recompute stay. A train.micro_batch of 0 is chosen for each number anew.
Json ExploreService::speed(const HttpRequest& request) {
    const auto [cfg, planner] = asked_of(exploration, request);
    const Planned own = timed(planner, cfg);
    Json::List points, missing;
    for (const int ranks : counts_of(cfg.parallel, own.estimate.ranks)) {
        Config other = cfg;
        other.parallel.ranks = ranks;
        try {
            points.push_back(json_of(planner.planned(other).estimate, true));
        } catch (const Fatal& e) {
            missing.push_back(Json::Members{{"ranks", ranks}, {"why", first_line(e.what())}});
        }
    }
    return Json::Members{{"points", points}, {"missing", missing}};
}

Json ExploreService::best(const HttpRequest& request) {
    auto [cfg, planner] = asked_of(exploration, request);
    CHECK_INPUT(cfg.cluster.named(), "cluster.gpu is not set: a search compares times");
    const Machine machine = machine_of(cfg);
    check_steps(cfg);
    take_open_settings(cfg);
    const double end = seconds_now() + kSearchSeconds;
    const auto stops = [&] { return stopping || seconds_now() > end; };
    const Search found = search(cfg, ranks_to_plan(cfg), machine, planner.estimate, stops);
    CHECK_INPUT(!stops(), "the search takes longer than {} s; ./train_gpt CONFIG --plan=search has no limit",
                kSearchSeconds);
    const bool none = found.best.empty();
    return Json::Members{{"settings", json_of_settings(none ? Settings() : settings_of(found.best.front()))},
                         {"plan", none ? Json() : json_of(found.best.front(), true)},
                         {"examined", found.rejected() + int(found.best.size())}};
}

// ---------------------------------------------------------------------------------------------------------
// answers

// What a plan with times needs, where neither an address nor the program's config has it.
static Settings needed_settings(const Exploration& e) {
    Settings settings;
    const Config& base = e.base;
    const auto is_named = [&](const char* key) {
        return std::find(base.named.begin(), base.named.end(), key) != base.named.end();
    };
    if (!base.cluster.named()) settings.emplace_back("cluster.gpu", "h100");
    if (base.parallel.ranks == 0) settings.emplace_back("parallel.ranks", "8");
    if (!is_named("train.batch_tokens")) settings.emplace_back("train.batch_tokens", "524288");
    if (base.model.vocab) return settings;
    try {
        Config cfg = base;
        take_open_settings(cfg);
    } catch (const Fatal&) {  // no tokens here: GPT-2's vocabulary
        settings.emplace_back("model.vocab", "50257");
    }
    return settings;
}

// The page's first state: of the program's config; without a model there, a model whose optimizer state
// outgrows a GPU.
static Settings first_settings(const Exploration& e, const std::vector<Preset>& presets) {
    constexpr const char* kModel = "gpt3_6700M";
    Settings settings = needed_settings(e);
    const auto is_model = [](const std::string& key) { return key.starts_with("model."); };
    const auto preset =
        std::find_if(presets.begin(), presets.end(), [](const Preset& p) { return p.name == kModel; });
    if (std::any_of(e.base.named.begin(), e.base.named.end(), is_model) || preset == presets.end())
        return settings;
    settings.insert(settings.end(), preset->settings.begin(), preset->settings.end());
    for (const auto& [key, value] : Settings{{"train.micro_batch", "1"}, {"parallel.zero", "1"}})
        settings.emplace_back(key, value);
    return settings;
}

// The values of each setting that has few, by its key.
static Json choices() {
    Config cfg;
    Json::Members all;
    for (const Field& f : fields(cfg)) {
        const Word* const* word = std::get_if<Word*>(&f.value);
        if (!word) continue;
        Json::List words;
        for (int i = 0; !Word::at((*word)->words, i).empty(); i++)
            words.push_back(std::string(Word::at((*word)->words, i)));
        all.emplace_back(f.path(), words);
    }
    Json::List stages;
    for (int zero = 0; zero < int(std::size(kZeroStages)); zero++) stages.push_back(zero);
    all.emplace_back("parallel.zero", stages);
    return all;
}

static std::string sharded_by(const Sharding& s) {
    std::string text;
    const auto add = [&](bool sharded, const char* what) {
        if (sharded) text += (text.empty() ? "" : ", ") + std::string(what);
    };
    add(s.state, "optimizer state");
    add(s.grads, "gradients");
    add(s.weights, "weights");
    return text.empty() ? "nothing" : text;
}

Json ExploreService::start() {
    Json::List machines;
    const ClusterConfig& own = exploration.base.cluster;
    for (const Machine& machine : all_machines()) machines.push_back(json_of(machine));
    const std::vector<Preset> presets = all_presets();
    Json::List models;
    for (const Preset& p : presets)
        models.push_back(
            Json::Members{{"name", p.name}, {"about", p.about}, {"settings", json_of_settings(p.settings)}});
    Json::List sharded;
    for (const Sharding& stage : kZeroStages) sharded.push_back(sharded_by(stage));
    return Json::Members{{"config", parse_json(to_json(exploration.base))},
                         {"choices", choices()},
                         {"sharded", sharded},
                         {"needed", json_of_settings(needed_settings(exploration))},
                         {"first", json_of_settings(first_settings(exploration, presets))},
                         {"machines", machines},
                         {"own_machine", own.file.empty() ? Json() : json_of(machine_of(own))},
                         {"presets", models}};
}

static int status_of(const Fatal& e) { return e.code == kExitInternal ? 500 : 400; }

// Shows a state that cannot be, too, with its line. As the page does, completes the address by the settings
// that a plan needs besides.
HttpAnswer ExploreService::page(HttpRequest request) {
    HttpAnswer answer = html_answer(explore_page());
    if (settings_in(request).empty()) return answer;        // the page's first state
    try {
        const Settings needed = needed_settings(exploration);
        request.query.insert(request.query.begin(), needed.begin(), needed.end());
        plan(request);
    } catch (const Fatal& e) {
        answer.status = status_of(e);
    }
    return answer;
}

HttpAnswer ExploreService::answer(const HttpRequest& request) {
    const auto json = [](const Json& v) {
        return HttpAnswer{.type = "application/json", .body = to_text(v) + "\n"};
    };
    const ErrorsThrown thrown;
    try {
        if (request.path == "/") return page(request);
        if (request.path == "/start.json") return json(start());
        if (request.path == "/plan.json") return json(plan(request));
        if (request.path == "/detail.json") return json(detail(request));
        if (request.path == "/speed.json") return json(speed(request));
        if (request.path != "/best.json") return {.status = 404, .body = "not found\n"};
        const std::unique_lock lock(searching, std::try_to_lock);
        if (!lock) return {.status = 503, .body = "another search is running: ask again in a few seconds\n"};
        return json(best(request));
    } catch (const Fatal& e) {
        return {.status = status_of(e), .body = first_line(e.what()) + "\n"};
    }
}

}  // namespace explorer
