#include "llmc/train/save/formats/kind.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"

inline namespace formats {

static std::optional<Field> field_of(Config& cfg, const std::string& setting) {
    for (const Field& f : fields(cfg))
        if (f.section == "model" && f.key == setting) return f;
    return {};
}

Json value_of_setting(const ModelConfig& m, const std::string& setting) {
    Config cfg;
    cfg.model = m;
    const std::optional<Field> f = field_of(cfg, setting);
    CHECK(f, "no setting model.{}", setting);
    if (double* const* x = std::get_if<double*>(&f->value)) return **x;
    return parse_json(value_json(f->value));
}

// False: the value is of another type.
static bool assign(const Value& to, const Json& v) {
    if (int* const* n = std::get_if<int*>(&to)) {
        if (!v.is_natural() || v.natural() > INT32_MAX) return false;
        **n = int(v.natural());
    } else if (double* const* x = std::get_if<double*>(&to)) {
        if (!v.is_number()) return false;
        **x = v.number();
    } else if (bool* const* b = std::get_if<bool*>(&to)) {
        if (!v.is_boolean()) return false;
        **b = v.boolean();
    } else return false;
    return true;
}

bool ForeignKind::has_other(const std::string& setting) const {
    return std::find(others.begin(), others.end(), setting) != others.end();
}

const char* ForeignKind::key_of(const std::string& setting) const {
    for (const FormatKey& k : keys)
        if (k.setting && setting == k.setting) return k.key;
    return "vocab_size";
}

std::string list_of_ids(const std::vector<const ForeignKind*>& kinds) {
    std::string text;
    for (const ForeignKind* kind : kinds) text += (text.empty() ? "" : ", ") + std::string(kind->id);
    return text;
}

static void set_key(Config& cfg, const FormatKey& k, const std::string& path, const Json* found) {
    const Field f = field_of(cfg, k.setting).value();
    const bool missing = !found || found->is_null();
    CHECK_INPUT(!missing || !k.values.empty(), "{}: there is no '{}'; expected {}", path, k.key, expected(f));
    const auto usual = [&]() -> const Json& { return found ? k.values.back() : k.values.front(); };
    const Json& v = missing ? usual() : *found;
    CHECK_INPUT(assign(f.value, v), "{}: {} is {}, expected {}", path, k.key, for_message(v), expected(f));
    CHECK_INPUT(missing || allowed(f), "{}: {} = {}: expected {}", path, k.key, for_message(v),
                expected(f));
}

static void check_key(const FormatKey& k, const ForeignKind& kind, const std::string& path,
                      const Json* found) {
    if (k.use == FormatKey::Write || !found || k.values.empty()) return;
    const bool known = std::find(k.values.begin(), k.values.end(), *found) != k.values.end();
    CHECK_INPUT(known, "{}: {} is {}, expected {}: this program computes no other {}", path, k.key,
                for_message(*found), to_text(k.values[0]), kind.name);
}

// Two keys may stand for one setting: attention_bias and mlp_bias.
static void check_twice(const ForeignKind& kind, const FormatKey& second, const std::string& path,
                        const Json& before, const Json& after) {
    const char* first = kind.key_of(second.setting);
    CHECK_INPUT(before == after || first == second.key, "{}: {} is {}, but {} is {}: this program has one "
                "setting for both, model.{}", path, first, to_text(before), second.key, to_text(after),
                second.setting);
}

static void check_names(const ForeignKind& kind, const ModelConfig& m, const std::string& path) {
    for (const std::string& why : in_the_way(m, kind))
        CHECK_INPUT(false, "{}: a {} has {}", path, kind.name, why);
}

ModelConfig settings_of(const ForeignKind& kind, const std::string& path,
                        const std::function<const Json*(const char* key)>& value,
                        const std::function<void(ModelConfig&)>& read_others) {
    Config cfg;
    for (const FixedSetting& f : kind.fixed) set_value(cfg, std::string("model.") + f.setting, f.value);
    for (const FormatKey& k : kind.keys) {
        if (!k.setting) check_key(k, kind, path, value(k.key));
        if (!k.setting || k.use == FormatKey::Write) continue;
        const Json before = value_of_setting(cfg.model, k.setting);
        set_key(cfg, k, path, value(k.key));
        check_twice(kind, k, path, before, value_of_setting(cfg.model, k.setting));
    }
    const ShapeKeys names = {kind.key_of("layers"), kind.key_of("heads"), kind.key_of("channels"),
                             kind.key_of("context"), kind.key_of("vocab")};
    const auto check = [&](const std::string& wrong) {
        CHECK_INPUT(wrong.empty(), "{}: {}", path, wrong);
    };
    check(wrong_shape(cfg.model, names));
    if (read_others) read_others(cfg.model);
    check(wrong_model(cfg.model, names));
    check_names(kind, cfg.model, path);
    return cfg.model;
}

Json::Members keys_to_write(const ForeignKind& kind, const ModelConfig& model) {
    const ModelConfig m = with_sizes(model);
    Json::Members members;
    for (const FormatKey& k : kind.keys) {
        if (k.use == FormatKey::Read) continue;
        Json v = k.setting ? value_of_setting(m, k.setting) : k.values[0];
        if (k.use == FormatKey::Short) {
            Config by_null;
            by_null.model = m;
            CHECK(assign(field_of(by_null, k.setting)->value, k.values.back()), "{}", k.key);
            if (value_of_setting(with_sizes(by_null.model), k.setting) == v) v = nullptr;
        }
        members.emplace_back(k.key, std::move(v));
    }
    return members;
}

// ---------------------------------------------------------------------------------------------------------
// which kind holds a model

// Without the settings that change nothing here.
static ModelConfig canonical(ModelConfig m) {
    const ModelConfig usual;
    m = with_sizes(m);
    if (m.bias) m.qkv_bias = usual.qkv_bias;
    if (m.qk_norm == QkNorm::None) m.qk_gain = usual.qk_gain;
    if (m.position == PositionKind::Learned) {
        m.rope_theta = usual.rope_theta;
        m.rope_still = usual.rope_still;
    }
    if (m.softcap == 0) m.softcap_kind = usual.softcap_kind;
    if (std::all_of(m.window.begin(), m.window.end(), [](int w) { return w == 0; })) m.window = usual.window;
    if (m.attention_scale == 1 / std::sqrt(m.head_channels)) m.attention_scale = 0;
    return m;
}

static bool stored(const ForeignKind& kind, const std::string& setting) {
    for (const FormatKey& k : kind.keys)
        if (k.setting && setting == k.setting) return true;
    return kind.has_other(setting);
}

static std::string scaling_in_the_way(const RopeScaling& s, const ForeignKind& kind) {
    const RopeScaling usual;
    if (s.kind == RopeScalingKind::Llama3 && !kind.llama3)
        return "model.rope_scaling = none, linear or yarn, not llama3";
    if (kind.betas || (s.beta_fast == usual.beta_fast && s.beta_slow == usual.beta_slow)) return "";
    return fmt::format("model.rope_scaling with beta_fast = {:g} and beta_slow = {:g}, not {:g} and {:g}",
                       usual.beta_fast, usual.beta_slow, s.beta_fast, s.beta_slow);
}

std::vector<std::string> in_the_way(const ModelConfig& m, const ForeignKind& kind) {
    Config own, held;
    own.model = canonical(m);
    for (const FixedSetting& f : kind.fixed) set_value(held, std::string("model.") + f.setting, f.value);
    const std::vector<Field> ours = fields(own), theirs = fields(held);
    for (size_t i = 0; i < ours.size(); i++)
        if (ours[i].section == "model" && (stored(kind, ours[i].key) || is_of_training(ours[i].key)))
            std::visit([&](auto* to) { *to = *std::get<decltype(to)>(ours[i].value); }, theirs[i].value);
    held.model = canonical(held.model);
    std::vector<std::string> why;
    for (size_t i = 0; i < ours.size(); i++) {
        const std::string value = value_json(ours[i].value), expected = value_json(theirs[i].value);
        if (value != expected) why.push_back(fmt::format("{} = {}, not {}", ours[i].path(), expected, value));
    }
    if (const std::string scaling = scaling_in_the_way(m.rope_scaling, kind); why.empty() && !scaling.empty())
        why.push_back(scaling);
    std::set<int> windows(own.model.window.begin(), own.model.window.end());
    windows.erase(0);
    const bool mixed = kind.one_window && own.model.window.size() > 1;
    if (why.empty() && mixed)
        why.push_back(fmt::format("model.window = one size, not {}",
                                  to_text(value_of_setting(own.model, "window"))));
    else if (why.empty() && windows.size() > 1)         // no format has two
        why.push_back(fmt::format("model.window = one size and 0, not {}",
                                  to_text(value_of_setting(own.model, "window"))));
    ModelConfig one_layer = own.model;
    one_layer.layers = 1;
    if (why.empty() && !kind.tensors.empty())
        for (const Tensor& t : whole_tensors(make_dims(one_layer)))
            if (foreign_tensors(kind.tensors, kind.blocks, t).empty())
                why.push_back(fmt::format("no tensor {}, which model.bias = {} with model.tied = {} asks for",
                                          t.param.name, m.bias, m.tied));
    return why;
}

size_t kind_for(const ModelConfig& m, const std::vector<const ForeignKind*>& kinds) {
    for (size_t i = 0; i < kinds.size(); i++)
        if (in_the_way(m, *kinds[i]).empty()) return i;
    fatal(kExitInternal, __FILE__, __LINE__, "no kind of {} holds the model", list_of_ids(kinds));
}

}  // namespace formats
