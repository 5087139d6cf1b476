#include "llmc/base/config/fields.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"

inline namespace config {

template <class F> static void each_section(Config& cfg, F&& f) {
    cfg.visit([&](const char* key, auto& member, const char* meaning) { f(key, member, meaning); });
}

template <class T> static T* value_of(T& member) { return &member; }
template <class E> static Word* value_of(Choice<E>& member) { return &member.word; }

std::vector<Field> fields(Config& cfg) {
    std::vector<Field> all;
    each_section(cfg, [&](const char* name, auto& section, const char* meaning) {
        if constexpr (std::is_same_v<decltype(section), std::string&>)
            all.push_back({"", name, &section, meaning, {}});
        else
            section.visit([&](const char* key, auto& member, const char* meaning, Limits limits = {}) {
                all.push_back({name, key, value_of(member), meaning, limits});
            });
    });
    return all;
}

std::vector<Section> sections() {
    std::vector<Section> all;
    Config cfg;
    each_section(cfg, [&](const char* name, auto& section, const char* meaning) {
        if constexpr (!std::is_same_v<decltype(section), std::string&>) all.push_back({name, meaning});
    });
    return all;
}

// ---------------------------------------------------------------------------------------------------------
// values

static JsonObject spaced() { return JsonObject(", ", ": "); }
template <class T> static std::string json_of(const T& v) { return json_text(v); }
static std::string json_of(const Word& v) { return json_string(v.text()); }
static std::string json_of(const Corpus& v) {
    return spaced().add("path", v.path).add("weight", v.weight).str();
}
static std::string json_of(RopeScaling v) {
    const std::string type = Choice(v.kind).text();
    if (!v.used()) return json_string(type);
    JsonObject form = spaced();
    form.add("type", type);
    v.visit([&](const char* key, const auto& value, bool) { form.add(key, value); });
    return form.str();
}
static std::string json_of(RollbackRule v) {
    JsonObject rule = spaced();
    v.visit([&](const char* key, const auto& value) { rule.add(key, value); });
    return rule.str();
}
template <class T> static std::string json_of(const std::vector<T>& v) {
    if constexpr (std::is_same_v<T, Corpus>)
        if (v.size() == 1 && v[0].weight == 1) return json_string(v[0].path);
    if constexpr (std::is_same_v<T, int>)
        if (v.size() == 1) return json_of(v[0]);
    return json_list(v, [](const T& x) { return json_of(x); }, ", ");
}

std::string value_json(const Value& v) {
    return std::visit([](auto* p) { return json_of(*p); }, v);
}

static std::string with_commas(const char* choices) {
    std::string text = choices;
    for (size_t i = 0; (i = text.find('|', i)) != std::string::npos;) text.replace(i, 1, ", ");
    return text;
}

// 1000000000, where JSON has 1e+09
static std::string plain(double v) {
    return std::nearbyint(v) == v && std::abs(v) < 1e15 ? std::to_string(int64_t(v)) : json_number(v);
}

// "of 1 to 4096", "of at least 1", or nothing
static std::string bounds(const Limits& l) {
    const bool low = std::isfinite(l.low), high = std::isfinite(l.high);
    if (low && high) return " of " + plain(l.low) + " to " + (l.open ? "less than " : "") + plain(l.high);
    return low ? " of at least " + plain(l.low) : "";
}

static std::string form_of(RopeScalingKind kind) {
    const std::string type = fmt::format("{{\"type\": \"{}\", \"factor\": 1 or more", Choice(kind).text());
    if (kind == RopeScalingKind::Linear) return type + "}";
    if (kind == RopeScalingKind::Llama3)
        return type + ", \"low\": above 0, \"high\": above low, \"context\": 1 or more}";
    return type + ", \"context\": 1 or more}, which may have \"beta_fast\": above beta_slow, "
                  "\"beta_slow\": above 0, \"attention\": 0 or more";
}

std::string expected(const Field& f) {
    return std::visit([&](auto* p) -> std::string {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>)
            return "an integer" + bounds(f.limits);
        if constexpr (std::is_same_v<T, double>) return "a number" + bounds(f.limits);
        if constexpr (std::is_same_v<T, bool>) return "true or false";
        if constexpr (std::is_same_v<T, std::vector<Corpus>>)
            return "a glob, or [{\"path\": glob, \"weight\": number above 0}, ...]";
        if constexpr (std::is_same_v<T, std::vector<int>>)
            return "an integer of 0 to 16777216, or a list of them";
        if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            return "a JSON list of integers" + bounds(f.limits) + ", such as [10, 200]";
        if constexpr (std::is_same_v<T, std::vector<std::string>>)
            return "a JSON list of texts, such as [\"optimizer.lr\"]";
        if constexpr (std::is_same_v<T, Word>) return "one of " + with_commas(p->words);
        if constexpr (std::is_same_v<T, RopeScaling>)
            return p->used() ? form_of(p->kind)
                             : fmt::format("none, {}, {}, or {}", form_of(RopeScalingKind::Llama3),
                                           form_of(RopeScalingKind::Linear), form_of(RopeScalingKind::Yarn));
        if constexpr (std::is_same_v<T, RollbackRule>)
            return "some of {\"every\": 0 or more, \"z\": above 0, \"steps\": 1 to 100, \"skip\": 0 or more, "
                   "\"most\": 1 or more}";
        return "a text";
    }, f.value);
}

static bool allowed(const RollbackRule& r) {
    const auto within = [](int64_t n, int64_t low, double high) { return n >= low && double(n) <= high; };
    return std::isfinite(r.z) && r.z > 0 && within(r.every, 0, kMany) && within(r.steps, 1, 100) &&
           within(r.skip, 0, kMany) && within(r.most, 1, kMany);
}

static bool allowed(RopeScaling s) {
    bool finite = true;
    s.visit([&](const char*, auto& value, bool) { finite = finite && std::isfinite(double(value)); });
    return finite && s.factor >= 1 && s.low > 0 && s.high > s.low && s.context >= 1 && s.beta_slow > 0 &&
           s.beta_fast > s.beta_slow && s.attention >= 0;
}

bool allowed(const Field& f) {
    return std::visit([&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_arithmetic_v<T>) {
            const double v = double(*p);
            return std::isfinite(v) && v >= f.limits.low && v <= f.limits.high &&
                   !(f.limits.open && v == f.limits.high);
        } else if constexpr (std::is_same_v<T, std::vector<Corpus>>)
            return !p->empty() && std::all_of(p->begin(), p->end(), [](const Corpus& c) {
                return !c.path.empty() && std::isfinite(c.weight) && c.weight > 0; });
        else if constexpr (std::is_same_v<T, std::vector<int>>)
            return !p->empty() && std::all_of(p->begin(), p->end(),
                                              [](int n) { return n >= 0 && n <= 1 << 24; });
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
            return std::all_of(p->begin(), p->end(), [&](int64_t n) {
                return double(n) >= f.limits.low && double(n) <= f.limits.high; });
        else if constexpr (std::is_same_v<T, RollbackRule> || std::is_same_v<T, RopeScaling>)
            return allowed(*p);
        else return true;
    }, f.value);
}

// ---------------------------------------------------------------------------------------------------------
// nearest

int edit_distance(const std::string& a, const std::string& b) {
    const size_t n = a.size(), m = b.size();
    std::vector<std::vector<int>> d(n + 1, std::vector<int>(m + 1));
    for (size_t i = 0; i <= n; i++) d[i][0] = int(i);
    for (size_t j = 0; j <= m; j++) d[0][j] = int(j);
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

// A right key in a wrong section, or without a section, counts as a single mistake.
static int mistakes(const std::string& path, const Field& f) {
    const size_t dot = path.rfind('.');
    const std::string section = dot == std::string::npos ? "" : path.substr(0, dot);
    const std::string key = path.substr(dot + 1);
    return edit_distance(key, f.key) + std::min(edit_distance(section, f.section), 1 + int(key.size() < 3));
}

std::string nearest(const std::string& unknown) {
    const std::string path = unknown.substr(0, 64);    // quadratic cost; every key is shorter
    Config defaults;
    std::string names;
    int best = 1 << 30;
    for (const Field& f : fields(defaults)) {
        const int d = mistakes(path, f);
        if (d > best) continue;
        names = d < best ? f.path() : names + ", " + f.path();
        best = d;
    }
    const int key = int(path.size() - (path.rfind('.') + 1));
    return best <= std::max(2, key / 2) ? names : "";
}

std::string nearest_section(const std::string& unknown) {
    const std::string name = unknown.substr(0, 64);
    const std::vector<Section> all = sections();
    return std::min_element(all.begin(), all.end(), [&](const Section& a, const Section& b) {
        return edit_distance(name, a.name) < edit_distance(name, b.name); })->name;
}

}  // namespace config
