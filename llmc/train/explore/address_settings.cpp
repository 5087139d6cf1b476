#include "llmc/train/explore/address_settings.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/model/depth.h"

inline namespace explorer {

static bool is_of_a_plan(const Field& f) {
    constexpr const char* kSections[] = {"model", "train", "optimizer", "parallel", "memory", "cluster"};
    const auto is_section = [&](const char* section) { return f.section == section; };
    const bool planned = std::any_of(std::begin(kSections), std::end(kSections), is_section);
    const bool text = std::holds_alternative<std::string*>(f.value);
    const bool word = f.path() == "run.precision" || f.path() == "run.products" || f.path() == "cluster.gpu";
    return word || (planned && !text);
}

bool stands_in_an_address(const std::string& key) {
    Config cfg;
    for (const Field& f : fields(cfg))
        if (f.path() == key) return is_of_a_plan(f);
    return false;
}

Settings settings_in(const HttpRequest& request) {
    Settings settings;
    for (const auto& [key, value] : request.query)
        if (key != "token") settings.emplace_back(key, value);
    return settings;
}

static void check_limit(const char* what, int64_t value, int most) {
    CHECK_INPUT(
        value <= most,
        "{} = {}: a request of this page plans at most {}; ./train_gpt CONFIG --plan has no such limit", what,
        value, most);
}

static void check_limits(const Config& cfg) {
    const ParallelConfig& p = cfg.parallel;
    const int ranks = ranks_to_plan(cfg), dp = std::max(1, mesh_shape(p, ranks).dp);
    check_limit("model.layers", cfg.model.layers, PlanLimits::kLayers);
    check_limit("parallel.ranks", ranks, PlanLimits::kRanks);
    check_limit("parallel.pp", p.pp, PlanLimits::kStages);
    check_limit("micro-batches of a rank in a step", micros_of_step(cfg, dp, cfg.train.micro_batch),
                PlanLimits::kMicros);
}

Config config_of(const Config& base, const HttpRequest& request) {
    Config cfg = base;
    for (const auto& [key, value] : settings_in(request)) {
        check_setting(key);
        CHECK_INPUT(stands_in_an_address(key),
                    "--{}: an address sets what a plan depends on, and names no file; start the page with "
                    "this setting instead: ./train_gpt CONFIG --explore --{}=VALUE",
                    key, key);
        set_value(cfg, key, value);
        if (key == "cluster.gpu" && !value.empty()) cfg.cluster.file.clear();   // a machine of the table
    }
    apply_depth(cfg);
    validate(cfg);
    check_limits(cfg);
    return cfg;
}

}  // namespace explorer
