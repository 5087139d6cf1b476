// config.json of Hugging Face: model_type names the class, whose table has the keys. Layers with a window
// have two forms, both read and written: layer_types, and max_window_layers before. Rotary positions are in
// rotary_hf.cpp.
#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/train/save/formats/format_hf.h"

inline namespace formats {

const HfClass& hf_class_of(const Json& config, const std::string& path) {
    const Json* type = config.find("model_type");
    for (const HfClass& c : hf_classes())
        if (!type || *type == Json(c.kind.id)) return c;
    CHECK_INPUT(false, "{}: model_type is {}, expected one of {}: this program computes no other", path,
                for_message(*type), list_of_ids(hf_kinds()));
}

static bool has_rotary(const HfClass& c) { return c.kind.has_other("rope_scaling"); }

// ---------------------------------------------------------------------------------------------------------
// windows

static bool has_windows(const HfClass& c) { return c.kind.has_other("window"); }

static int number_of(const Json& config, const char* key, int missing, const std::string& path) {
    const Json& v = config.get(key);
    if (v.is_null()) return missing;
    CHECK_INPUT(v.is_natural() && v.natural() <= INT32_MAX, "{}: {} is {}, expected a natural number", path,
                key, for_message(v));
    return int(v.natural());
}

// Which layers slide; whether they may, another class cannot.
static std::vector<bool> sliding_layers(const Json& config, int layers, int first, bool may,
                                        const std::string& path) {
    std::vector<bool> slides;
    for (int l = 0; l < layers; l++) slides.push_back(may && l >= first);
    const Json& types = config.get("layer_types");
    if (types.is_null()) return slides;
    CHECK_INPUT(types.is_list(), "{}: layer_types is {}, expected a list", path, for_message(types));
    CHECK_INPUT(int64_t(types.list().size()) == layers, "{}: layer_types has {} layers, num_hidden_layers is "
                "{}", path, types.list().size(), layers);
    for (size_t l = 0; l < slides.size(); l++) {
        const Json& type = types.list()[l];
        slides[l] = type == Json("sliding_attention");
        CHECK_INPUT(type == Json("full_attention") || (slides[l] && may), "{}: layer_types has {}, expected "
                    "\"full_attention\"{}", path, for_message(type), may ? " or \"sliding_attention\"" :
                    " alone, where use_sliding_window is not true with a sliding_window");
    }
    return slides;
}

// In the shortest form: model.window is repeated over the layers.
static std::vector<int> shortest(std::vector<int> windows) {
    for (size_t n = 1; n < windows.size(); n++) {
        bool repeats = true;
        for (size_t l = n; l < windows.size(); l++) repeats = repeats && windows[l] == windows[l - n];
        if (repeats) windows.resize(n);
    }
    return windows;
}

static void read_windows(const HfClass& c, const Json& config, const std::string& path, ModelConfig& m) {
    const Json& use = config.get("use_sliding_window");
    CHECK_INPUT(use.is_null() || use.is_boolean(), "{}: use_sliding_window is {}, expected true or false",
                path, for_message(use));
    const int size = number_of(config, "sliding_window", config.find("sliding_window") ? 0 : 4096, path);
    const int first = number_of(config, "max_window_layers", 28, path);     // of transformers' Qwen3Config
    const bool may = has_windows(c) && (c.kind.one_window || use == Json(true)) && size > 0;
    const std::vector<bool> slides =
        sliding_layers(config, m.layers, c.kind.one_window ? 0 : first, may, path);
    m.window.clear();
    for (const bool s : slides) m.window.push_back(s ? size : 0);
    m.window = shortest(m.window);
}

static void add_windows(const HfClass& c, Json::Members& members, const ModelConfig& m) {
    Json::List types;
    int size = 0, first = m.layers;
    for (int l = m.layers - 1; l >= 0; l--) {
        const int window = m.window[size_t(l) % m.window.size()];
        size = std::max(size, window);
        if (window && first == l + 1) first = l;
    }
    for (int l = 0; l < m.layers; l++)
        types.push_back(m.window[size_t(l) % m.window.size()] ? "sliding_attention" : "full_attention");
    members.emplace_back("sliding_window", size ? Json(size) : Json());
    if (c.kind.one_window) return;
    members.emplace_back("use_sliding_window", size > 0);
    members.emplace_back("max_window_layers", first);
    members.emplace_back("layer_types", std::move(types));
}

// ---------------------------------------------------------------------------------------------------------
// keys that the class does not have

// Names of keys that change what a model computes have one of these words.
static constexpr const char* kMathWords[] = {
    "scal", "multiplier", "softcap", "rotary", "rope", "bias", "norm", "clip", "expert", "window", "alibi",
    "parallel", "residual", "temperature_tuning", "attention_type", "chunk"};
// Read by read_rotary() and read_windows().
static constexpr const char* kOfPositions[] = {
    "rope_theta", "rope_scaling", "rope_parameters", "layer_types", "use_sliding_window", "sliding_window",
    "max_window_layers"};

template <size_t N, class F> static bool any_of(const char* const (&words)[N], F&& f) {
    return std::any_of(words, words + N, f);
}

static bool is_read(const HfClass& c, const std::string& key) {
    const auto same = [&](const FormatKey& k) { return key == k.key; };
    const bool of_position = has_rotary(c) && any_of(kOfPositions, [&](const char* k) { return key == k; });
    return of_position || std::any_of(c.kind.keys.begin(), c.kind.keys.end(), same);
}

// As without the key.
static bool changes_nothing(const Json& v) {
    const bool empty = (v.is_list() && v.list().empty()) || (v.is_object() && v.members().empty());
    return v.is_null() || v == Json(false) || v == Json(0) || v == Json(1) || empty;
}

static void check_other_keys(const HfClass& c, const Json& config, const std::string& path) {
    for (const auto& member : config.members()) {
        const auto& key = member.first;
        const Json& value = member.second;
        const bool math = any_of(kMathWords, [&](const char* word) { return key.find(word) != key.npos; });
        CHECK_INPUT(!math || is_read(c, key) || changes_nothing(value), "{}: {} = {} is no key of a {}, and "
                    "may change what the model computes; remove the key if it does not", path, key,
                    for_message(value), c.kind.name);
    }
}

ModelConfig hf_settings(const HfClass& c, const Json& config, const std::string& path) {
    check_other_keys(c, config, path);
    return settings_of(c.kind, path, [&](const char* key) { return config.find(key); }, [&](ModelConfig& m) {
        if (!has_rotary(c)) return;
        read_rotary_hf(config, path, m);
        read_windows(c, config, path, m);
    });
}

std::string hf_config_json(const HfClass& c, const OwnModel& m, const char* dtype) {
    Json begin, end;
    if (const Tokenizer* t = m.tokenizer) {
        begin = t->bos() >= 0 ? t->bos() : int64_t(t->eot());
        end = t->eos() >= 0 ? t->eos() : int64_t(t->eot());
    }
    Json::Members members = {{"architectures", Json::List{c.kind.name}}, {"model_type", c.kind.id}};
    for (auto& [key, value] : keys_to_write(c.kind, m.shape))
        members.emplace_back(key, key == "dtype" || key == "torch_dtype" ? Json(dtype) : std::move(value));
    if (has_windows(c)) add_windows(c, members, m.shape);
    if (has_rotary(c)) add_rotary_hf(members, m.shape);
    members.emplace_back("bos_token_id", std::move(begin));
    members.emplace_back("eos_token_id", std::move(end));
    return to_text(std::move(members), 2) + "\n";
}

}  // namespace formats
