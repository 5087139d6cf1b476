// Reading and checking configs: JSON, then the command line's values, then the rules between settings.
#include "llmc/base/config/config.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <set>
#include <type_traits>

#include "llmc/base/check.h"
#include "llmc/base/config/fields.h"
#include "llmc/base/config/known_names.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_file.h"

inline namespace config {

// ---------------------------------------------------------------------------------------------------------
// one value

// Each overload returns whether v has the type, and if so stores the value.
static bool assign(bool& to, const Json& v) { return v.is_boolean() && (to = v.boolean(), true); }
static bool assign(std::string& to, const Json& v) { return v.is_string() && (to = v.string(), true); }
static bool assign(Word& to, const Json& v) { return v.is_string() && to.parse(v.string()); }
// + 0.0: removes the sign of -0, as JSON's -0 is an integer and reads back without a sign
static bool assign(double& to, const Json& v) { return v.is_number() && (to = v.number() + 0.0, true); }

// "100M" and "1.5B". Without k: 64k may mean 64,000 or 65,536.
static std::optional<double> number_in(const std::string& text) {
    if (!text.ends_with('M') && !text.ends_with('B')) return std::nullopt;
    const double unit = text.ends_with('M') ? 1e6 : 1e9;
    double number;
    const char* const end = text.data() + text.size() - 1;
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (rest != end || error != std::errc()) return std::nullopt;
    const double value = number * unit, whole = std::round(value);
    const bool rounded = std::abs(value - whole) < 1e-6 * std::max(1.0, std::abs(number));     // 1.1M
    return rounded ? whole : value;
}

// 1e6 is an integer too
template <class T> requires std::is_integral_v<T> static bool assign(T& to, const Json& v) {
    if (v.is_string()) {
        const std::optional<double> number = number_in(v.string());
        return number && assign(to, Json(*number));
    }
    if (!v.is_number()) return false;
    const double d = v.number();
    if (!(std::abs(d) < 0x1p63) || d != std::floor(d)) return false;
    const int64_t n = v.is_integer() ? v.integer() : int64_t(d);
    to = T(n);
    return to == n;
}

static bool assign(Corpus& to, const Json& v) {
    const Json* weight = v.find("weight");
    if (!v.is_object() || !assign(to.path, v.get("path"))) return false;
    return v.members().size() == (weight ? 2 : 1) && (!weight || assign(to.weight, *weight));
}

static bool assign(RopeScaling& to, const Json& v) {
    to = {};
    if (v.is_string()) return v.string() == "none";
    Word type{words_of(RopeScalingKind())};
    const Json* const word = v.find("type");
    if (!v.is_object() || !word || !word->is_string() || !type.parse(word->string())) return false;
    to.kind = RopeScalingKind(type.index);
    size_t known = 1;
    bool fits = to.used();
    to.visit([&](const char* key, auto& value, bool required) {
        const Json* const given = v.find(key);
        known += given != nullptr;
        fits = fits && (given ? assign(value, *given) : !required);
    });
    return fits && known == v.members().size();
}

// Keys that are not named have their defaults.
static bool assign(RollbackRule& to, const Json& v) {
    to = {};
    size_t known = 0;
    bool fits = v.is_object();
    to.visit([&](const char* key, auto& value) {
        const Json* const given = v.find(key);
        known += given != nullptr;
        fits = fits && (!given || assign(value, *given));
    });
    return fits && known == v.members().size();
}

template <class T> static bool assign(std::vector<T>& to, const Json& v) {
    to.clear();
    if constexpr (std::is_same_v<T, Corpus>)
        if (v.is_string()) {
            to.push_back({v.string()});
            return true;
        }
    if constexpr (std::is_same_v<T, int>)
        if (v.is_number()) return assign(to.emplace_back(), v);
    if (!v.is_list()) return false;
    for (const Json& x : v.list())
        if (!assign(to.emplace_back(), x)) return false;
    return true;
}

// The system would read a path up to the NUL, and find another file.
static bool has_nul(const std::string& text) { return text.find('\0') != text.npos; }
static bool has_nul(const Corpus& corpus) { return has_nul(corpus.path); }
template <class T> static bool has_nul(const T& value) {
    if constexpr (std::is_same_v<T, std::vector<std::string>> || std::is_same_v<T, std::vector<Corpus>>)
        return std::ranges::any_of(value, [](const auto& v) { return has_nul(v); });
    return false;
}

// `where` starts the message: "config.json: train.steps = " or "--train.steps="
static void set_field(const Field& f, const Json& v, const std::string& where, const std::string& shown) {
    const bool typed = std::visit([&](auto* p) { return assign(*p, v); }, f.value);
    const std::string text = v.is_string() ? v.string() : "";
    const bool thousands = text.size() > 1 && isdigit(uint8_t(text[0])) && strchr("kK", text.back());
    CHECK_INPUT(typed && allowed(f), "{}{}: expected {}{}\n       {}: {}", where, shown, expected(f),
                thousands ? "; k may be 1000 or 1024: write the number in full" : "", f.path(), f.meaning);
    const bool nul = std::visit([](auto* p) { return has_nul(*p); }, f.value);
    CHECK_INPUT(!nul, "{}{}: no setting has the character NUL (\\u0000)", where, shown);
}

static const Field* find(const std::vector<Field>& all, const std::string& path) {
    for (const Field& f : all)
        if (f.path() == path) return &f;
    return nullptr;
}

[[noreturn]] static void unknown(const std::string& where, const std::string& path, bool section = false) {
    const KnownName* known = known_name(path);
    const std::string near = section ? nearest_section(path) : nearest(path);
    std::string what = near.empty() ? "" : " Did you mean " + near + "?";
    if (known) what = advice(*known);
    fatal(kExitConfig, __FILE__, __LINE__, "{}: there is no such {}.{}\n"
          "       ./train_gpt --help lists them all.", where, section ? "section" : "setting",
          what);
}

void check_setting(const std::string& path) {
    Config cfg;
    if (!find(fields(cfg), path)) unknown("--" + path.substr(0, 200), path);
}

void set_value(Config& cfg, const std::string& path, const std::string& text) {
    const std::vector<Field> all = fields(cfg);
    const Field* f = find(all, path);
    if (!f) return check_setting(path);
    const bool is_text = std::holds_alternative<std::string*>(f->value) ||
                         std::holds_alternative<Word*>(f->value);
    const bool is_glob = std::holds_alternative<std::vector<Corpus>*>(f->value) && !text.starts_with("[");
    const bool is_word = std::holds_alternative<RopeScaling*>(f->value) && !text.starts_with("{");
    const bool is_integer = std::holds_alternative<int*>(f->value) ||
                            std::holds_alternative<int64_t*>(f->value);
    double number;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const bool is_number = rest == end && error == std::errc();    // JSON does not have .5 and 1.
    Json v;                                                         // null fits nowhere
    try {
        v = is_text || is_glob || is_word ? Json(text) : parse_json(text);
    } catch (const JsonError&) {
        if (is_number) v = number;
        else if (is_integer) v = text;          // 100M
    }
    set_field(*f, v, "--" + path + "=", text.size() > 80 ? text.substr(0, 77) + "..." : text);
    cfg.named.push_back(path);
}

// ---------------------------------------------------------------------------------------------------------
// a file

static constexpr int kDeepest = 8;      // no config is
static constexpr JsonHints kHints = {
    .start = "settings look like this: {\"train\": {\"steps\": 1000}, ...}",
    .comment = "JSON has no comments; \"about\" takes a free text"};

Config parse_config(std::string_view text, const std::string& name) {
    Config cfg;
    const std::vector<Field> all = fields(cfg);
    std::set<std::string> names;
    for (const Section& s : sections()) names.insert(s.name);
    const Json root = parse_json_text(text, name, kDeepest, kHints);
    CHECK_INPUT(root.is_object(), "{}: expected an object of sections, {{\"model\": {{...}}, ...}}, found {}",
                name, for_message(root));
    for (const auto& [section, values] : root.members()) {
        const std::string at = name + ": " + section.substr(0, 200);
        if (const Field* f = find(all, section)) {
            set_field(*f, values, at + " = ", for_message(values));
            continue;
        }
        if (!names.contains(section)) unknown(at, section, values.is_object());
        CHECK_INPUT(values.is_object(), "{} = {}: expected an object, {{\"key\": value, ...}}", at,
                    for_message(values));
        for (const auto& [key, v] : values.members()) {
            const std::string path = section + "." + key.substr(0, 200);
            const Field* f = find(all, path);
            if (!f) unknown(name + ": " + path, path);
            set_field(*f, v, name + ": " + path + " = ", for_message(v));
            cfg.named.push_back(path);
        }
    }
    return cfg;
}

static constexpr size_t kLargest = 1 << 20;

Config load_config(const std::string& path) {
    if (path.starts_with('{')) return parse_config(path, "the config");
    const Fd file = open_stream(path);
    std::string text(kLargest, '\0');
    text.resize(read_up_to(file.fd, text.data(), text.size(), path));
    CHECK_INPUT(!text.empty(), "the config {} is empty; {{}} takes all defaults", path);
    CHECK_INPUT(text.size() < kLargest, "{} has more than {} bytes: this is no config", path,
                kLargest);
    return parse_config(text, path);
}

std::string to_json(const Config& cfg) {
    Config copy = cfg;
    const std::vector<Field> all = fields(copy);
    std::string text = "{", open;    // the open section
    for (const Field& f : all) {
        if (f.section != open)
            text += (open.empty() ? ",\n  " : "\n  },\n  ") + json_string(f.section) + ": {";
        else if (&f != &all.front()) text += ",";
        text += (f.section.empty() ? "\n  " : "\n    ") + json_string(f.key) + ": " + value_json(f.value);
        open = f.section;
    }
    return text + "\n  }\n}\n";
}

}  // namespace config
