// config.json of Hugging Face: model_type names the class, whose table has the keys. The turns of RoPE have
// two forms, both read and written: rope_parameters in transformers 5, rope_theta and rope_scaling before.
#include <optional>

#include "llmc/base/check.h"
#include "llmc/train/save/formats/format_hf.h"

const HfClass& hf_class_of(const Json& config, const std::string& path) {
    const Json* type = config.find("model_type");
    std::string known;
    for (const HfClass& c : hf_classes()) {
        if (!type || *type == Json(c.kind.id)) return c;
        known += (known.empty() ? "" : ", ") + std::string(c.kind.id);
    }
    CHECK_INPUT(false, "{}: model_type is {}, expected one of {}: this program computes no other", path,
                for_message(*type), known);
}

// The turns as one form says; nothing: the file does not have it.
struct Turns { std::optional<double> theta; };

static std::optional<double> theta_of(const Json& from, const std::string& path) {
    const Json* theta = from.find("rope_theta");
    if (!theta || theta->is_null()) return {};
    CHECK_INPUT(theta->is_number() && theta->number() >= 1e-3 && theta->number() <= 1e12,
                "{}: rope_theta is {}, expected a number of 1e-3 to 1e12", path, for_message(*theta));
    return theta->number();
}

static Turns turns_of(const Json& config, const char* key, const std::string& path) {
    const Json& form = config.get(key);
    if (form.is_null()) return {};
    CHECK_INPUT(form.is_object(), "{}: {} is {}, expected an object", path, key, for_message(form));
    const Json& type = form.find("rope_type") ? form.get("rope_type") : form.get("type");
    CHECK_INPUT(type.is_null() || type == Json("default"), "{}: {} has the type {}, expected \"default\": "
                "this program computes no other turns", path, key, for_message(type));
    return {.theta = theta_of(form, path)};
}

static void read_turns(const Json& config, const std::string& path, ModelConfig& m) {
    const Turns now = turns_of(config, "rope_parameters", path);
    turns_of(config, "rope_scaling", path);
    const std::optional<double> before = theta_of(config, path);
    CHECK_INPUT(!now.theta || !before || *now.theta == *before, "{}: rope_theta is {:g}, and {:g} in "
                "rope_parameters; leave one out", path, *before, *now.theta);
    m.rope_theta = now.theta.value_or(before.value_or(1e4));
}

static void check_layer_types(const Json& config, const std::string& path) {
    const Json& types = config.get("layer_types");
    if (types.is_null()) return;
    CHECK_INPUT(types.is_list(), "{}: layer_types is {}, expected a list", path, for_message(types));
    for (const Json& type : types.list())
        CHECK_INPUT(type == Json("full_attention"), "{}: layer_types has {}, expected \"full_attention\" "
                    "alone", path, for_message(type));
}

static bool has_turns(const HfClass& c) { return !c.kind.others.empty(); }

ModelConfig hf_settings(const HfClass& c, const Json& config, const std::string& path) {
    return settings_of(c.kind, path, [&](const char* key) { return config.find(key); }, [&](ModelConfig& m) {
        if (!has_turns(c)) return;
        read_turns(config, path, m);
        check_layer_types(config, path);
    });
}

std::string hf_config_json(const HfClass& c, const OwnModel& m) {
    const Json eot = m.tokenizer ? Json(m.tokenizer->eot()) : Json();
    Json::Members members = {{"architectures", Json::List{c.kind.name}}, {"model_type", c.kind.id}};
    for (auto& member : keys_to_write(c.kind, m.shape)) members.push_back(std::move(member));
    if (has_turns(c)) {
        members.emplace_back("rope_parameters", Json::Members{{"rope_type", "default"},
                                                              {"rope_theta", m.shape.rope_theta}});
        members.emplace_back("rope_theta", m.shape.rope_theta);
        members.emplace_back("rope_scaling", nullptr);
    }
    members.emplace_back("bos_token_id", eot);
    members.emplace_back("eos_token_id", eot);
    return to_text(std::move(members), 2) + "\n";
}
