// Rotary positions in config.json of Hugging Face, in two forms, both read and written: rope_parameters in
// transformers 5, rope_theta and rope_scaling before.
#include <cmath>
#include <optional>

#include "llmc/base/check.h"
#include "llmc/train/save/formats/format_hf.h"

inline namespace formats {

// As one of the forms says; nothing: the file does not have the form, or not the number.
struct Rotary {
    std::optional<double> theta;
    std::optional<RopeScaling> scaling;
};

static std::optional<double> theta_of(const Json& from, const std::string& path) {
    const Json* theta = from.find("rope_theta");
    if (!theta || theta->is_null()) return {};
    CHECK_INPUT(theta->is_number() && theta->number() >= 1e-3 && theta->number() <= 1e12,
                "{}: rope_theta is {}, expected a number of 1e-3 to 1e12", path, for_message(*theta));
    return theta->number();
}

// A form, and its place for messages.
struct RotaryForm {
    const Json& form;
    std::string where;

    bool has(const char* key) const { return !form.get(key).is_null(); }
    double number(const char* key) const {
        const Json& v = form.get(key);
        CHECK_INPUT(v.is_number() && v.number() > 0 && v.number() <= 1 << 24, "{}: {} is {}, expected a "
                    "number above 0", where, key, for_message(v));
        return v.number();
    }
    double number(const char* key, double missing) const { return has(key) ? number(key) : missing; }
    double factor() const {
        const double f = number("factor");
        CHECK_INPUT(f >= 1, "{}: factor is {:g}, expected a factor of 1 or more", where, f);
        return f;
    }
    int first_context(double missing) const {
        const double context = number("original_max_position_embeddings", missing);
        CHECK_INPUT(context >= 1, "{}: original_max_position_embeddings is {:g}, expected 1 or more", where,
                    context);
        return int(context);
    }
};

static RopeScaling llama3_of(const RotaryForm& form) {
    const RopeScaling s = {.kind = RopeScalingKind::Llama3, .factor = form.factor(),
                           .low = form.number("low_freq_factor"), .high = form.number("high_freq_factor"),
                           .context = form.first_context(form.number("original_max_position_embeddings"))};
    CHECK_INPUT(s.high > s.low, "{}: low_freq_factor {:g}, high_freq_factor {:g}: expected high above low",
                form.where, s.low, s.high);
    return s;
}

// transformers' factor of cos and sin where attention_factor is missing; 0: that of the paper.
static double attention_of(const RotaryForm& form, double factor) {
    if (form.has("attention_factor")) return form.number("attention_factor");
    if (!form.has("mscale") || !form.has("mscale_all_dim")) return 0;
    const auto by = [&](const char* key) { return 0.1 * form.number(key) * std::log(factor) + 1; };
    return by("mscale") / by("mscale_all_dim");
}

// context: max_position_embeddings, where the form does not have the first training's.
static RopeScaling yarn_of(const RotaryForm& form, int context) {
    RopeScaling s = {.kind = RopeScalingKind::Yarn, .factor = form.factor(),
                     .context = form.first_context(context)};
    s.beta_fast = form.number("beta_fast", s.beta_fast);
    s.beta_slow = form.number("beta_slow", s.beta_slow);
    s.attention = attention_of(form, s.factor);
    CHECK_INPUT(s.beta_fast > s.beta_slow, "{}: beta_fast {:g}, beta_slow {:g}: expected fast above slow",
                form.where, s.beta_fast, s.beta_slow);
    return s;
}

// ---------------------------------------------------------------------------------------------------------
// which form, which kind

static const char* const kAnyKind[] = {"rope_type", "type", "rope_theta", "original_max_position_embeddings"};
static const char* const kOfLlama3[] = {"factor", "low_freq_factor", "high_freq_factor"};
static const char* const kOfYarn[] = {"factor", "beta_fast", "beta_slow", "attention_factor", "mscale",
                                      "mscale_all_dim", "finetuned"};

template <size_t N> static bool is_one(const std::string& key, const char* const (&keys)[N]) {
    for (const char* k : keys)
        if (key == k) return true;
    return false;
}

static bool has_key(RopeScalingKind kind, const std::string& key) {
    if (is_one(key, kAnyKind)) return true;
    if (kind == RopeScalingKind::Linear) return key == "factor";
    if (kind == RopeScalingKind::Llama3) return is_one(key, kOfLlama3);
    return kind == RopeScalingKind::Yarn && is_one(key, kOfYarn);
}

// A key that the kind does not have may change the rotation; 1 and null do not, nor does the usual truncate.
static void check_rotary_keys(const RotaryForm& form, RopeScalingKind kind) {
    for (const auto& [name, value] : form.form.members()) {
        const bool harmless = value.is_null() || value == Json(1) ||
                              (name == "truncate" && value == Json(true));
        CHECK_INPUT(has_key(kind, name) || harmless, "{} has {} = {}: this program computes no such turns",
                    form.where, name, for_message(value));
    }
}

static RopeScalingKind scaling_kind(const RotaryForm& form) {
    const Json& type = form.form.get(form.form.find("rope_type") ? "rope_type" : "type");
    if (type.is_null() || type == Json("default")) return RopeScalingKind::None;
    Word kind{words_of(RopeScalingKind())};
    const bool known = type.is_string() && kind.parse(type.string()) && kind.index > 0;
    CHECK_INPUT(known, "{} has the type {}, expected \"default\", \"linear\", \"yarn\" or \"llama3\": this "
                "program computes no other turns", form.where, for_message(type));
    return RopeScalingKind(kind.index);
}

static RopeScaling scaling_of(const RotaryForm& form, RopeScalingKind kind, int context) {
    if (kind == RopeScalingKind::Llama3) return llama3_of(form);
    if (kind == RopeScalingKind::Yarn) return yarn_of(form, context);
    if (kind == RopeScalingKind::Linear) return {.kind = kind, .factor = form.factor()};
    return {};
}

static Rotary rotary_of(const Json& config, const char* key, const std::string& path, int context) {
    const RotaryForm form = {config.get(key), path + ": " + key};
    if (form.form.is_null()) return {};
    CHECK_INPUT(form.form.is_object(), "{} is {}, expected an object", form.where, for_message(form.form));
    const RopeScalingKind kind = scaling_kind(form);
    check_rotary_keys(form, kind);
    return {.theta = theta_of(form.form, path), .scaling = scaling_of(form, kind, context)};
}

void read_rotary_hf(const Json& config, const std::string& path, ModelConfig& m) {
    const Rotary now = rotary_of(config, "rope_parameters", path, m.context);
    const Rotary old = rotary_of(config, "rope_scaling", path, m.context);
    const std::optional<double> before = theta_of(config, path);
    CHECK_INPUT(!now.theta || !before || *now.theta == *before, "{}: rope_theta is {:g}, and {:g} in "
                "rope_parameters; leave one out", path, *before, *now.theta);
    CHECK_INPUT(!now.scaling || !old.scaling || *now.scaling == *old.scaling, "{}: rope_scaling is other "
                "than rope_parameters; leave one out", path);
    m.rope_theta = now.theta.value_or(before.value_or(1e4));
    m.rope_scaling = now.scaling.value_or(old.scaling.value_or(RopeScaling()));
}

// ---------------------------------------------------------------------------------------------------------
// writing

static Json::Members scaling_members(const RopeScaling& s) {
    if (!s.used()) return {{"rope_type", "default"}};
    Json::Members members = {{"rope_type", Choice(s.kind).text()}, {"factor", s.factor}};
    if (s.kind == RopeScalingKind::Linear) return members;
    if (s.kind == RopeScalingKind::Llama3) {
        members.emplace_back("low_freq_factor", s.low);
        members.emplace_back("high_freq_factor", s.high);
    } else {
        members.emplace_back("beta_fast", s.beta_fast);
        members.emplace_back("beta_slow", s.beta_slow);
        if (s.attention > 0) members.emplace_back("attention_factor", s.attention);
    }
    members.emplace_back("original_max_position_embeddings", s.context);
    return members;
}

void add_rotary_hf(Json::Members& members, const ModelConfig& m) {
    Json::Members scaling = scaling_members(m.rope_scaling), rotary = scaling;
    rotary.emplace_back("rope_theta", m.rope_theta);
    members.emplace_back("rope_parameters", std::move(rotary));
    members.emplace_back("rope_theta", m.rope_theta);
    members.emplace_back("rope_scaling", m.rope_scaling.used() ? Json(std::move(scaling)) : Json());
}

}  // namespace formats
