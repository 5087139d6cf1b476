#include "llmc/io/unicode/pattern.h"

#include "llmc/base/check.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPERS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

inline namespace unicode {

static constexpr const char kLlama3[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES;
static constexpr const char kQwen2[] =
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES;
// The possessive ?+ and ++, and [\r\n] for [\r\n]+, match what Llama 3's pattern does.
static constexpr const char kNanochat[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static constexpr const char kO200k[] =
    "[^\\r\\n\\p{L}\\p{N}]?" UPPERS "*" LOWERS "+" CONTRACTIONS "?"
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPERS "+" LOWERS "*" CONTRACTIONS "?"
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES;

static constexpr Pattern kPatterns[] = {
    // name, regex, digits, NFC, ignores merges, matches
    {"gpt2", nullptr, false, false, false, mark_gpt2},
    {"llama3", kLlama3, false, false, true, mark_llama3},
    {"qwen2", kQwen2, false, true, false, mark_qwen2},
    {"smollm", nullptr, true, false, false, mark_smollm},
    {"o200k", kO200k, false, false, false, mark_o200k},
    {"nanochat", kNanochat, false, false, false, mark_nanochat},
};

std::span<const Pattern> patterns() { return kPatterns; }

const Pattern* pattern_named(std::string_view name) {
    for (const Pattern& p : kPatterns)
        if (name == p.name) return &p;
    return nullptr;
}

std::string pattern_names() {
    std::string names;
    for (const Pattern& p : kPatterns) names += (names.empty() ? "" : ", ") + std::string(p.name);
    return names;
}

// The steps of a pre-tokenizer: itself, or those of a Sequence.
static Json::List steps_of(const Json& pre_tokenizer) {
    if (pre_tokenizer.get("type") != "Sequence") return {pre_tokenizer};
    const Json& steps = pre_tokenizer.get("pretokenizers");
    return steps.is_list() ? steps.list() : Json::List();
}

// ByteLevel splits by GPT-2's pattern, or only writes bytes as characters.
static bool splits(const Json& byte_level) {
    const Json* regex = byte_level.find("use_regex");
    return !regex || *regex == true;
}

static bool has_prefix_space(const Json& byte_level) {
    return !(byte_level.get("add_prefix_space") == false);
}

// Every character is in a match: to keep matches and to drop all else gives the same.
static bool is_split(const Json& step, const char* regex) {
    const Json &behavior = step.get("behavior"), &invert = step.get("invert");
    const bool isolated = behavior == "Isolated" && !(invert == true);
    const bool kept = behavior == "Removed" && invert == true;
    return step.get("type") == "Split" && step.get("pattern").get("Regex") == regex && (isolated || kept);
}

static bool is_digits(const Json& step) {
    return step.get("type") == "Digits" && step.get("individual_digits") == true;
}

static bool is_pattern(const Json::List& steps, const Pattern& p) {
    if (steps.empty() || steps.back().get("type") != "ByteLevel") return false;
    if (splits(steps.back()) != (p.regex == nullptr)) return false;
    if (has_prefix_space(steps.back()) && steps.size() > 1) return false;   // one for each match of the first
    if (p.regex) return steps.size() == 2 && is_split(steps[0], p.regex);
    if (p.digits) return steps.size() == 2 && is_digits(steps[0]);
    return steps.size() == 1;
}

const Pattern& pattern_of_json(const Json& pre_tokenizer, const std::string& file, bool& prefix_space) {
    const Json::List steps = steps_of(pre_tokenizer);
    for (const Pattern& p : kPatterns) {
        if (!is_pattern(steps, p)) continue;
        prefix_space = has_prefix_space(steps[0]) && p.regex == nullptr && !p.digits;
        return p;
    }
    std::string found = to_text(pre_tokenizer);
    std::string with;
    for (const Json& step : steps) {
        const Json& regex = step.get("pattern").get("Regex");
        if (regex.is_string()) found = "a Split by the pattern " + regex.string();
        if (step.get("type") != "ByteLevel") continue;
        if (splits(step)) with += ", then a ByteLevel with use_regex = true, which splits its matches again";
        if (has_prefix_space(step)) with += ", then a ByteLevel with add_prefix_space = true";
    }
    const bool two = steps.size() > 1;
    CHECK_INPUT(false,
                "{}: pre_tokenizer is {:.1000}{}\n"
                "       expected that of {}; behind a Split, with ByteLevel's use_regex and add_prefix_space "
                "false. Ids by another pattern would differ",
                file, found, two ? with : "", pattern_names());
}

Json json_of_pattern(const Pattern& p, bool prefix_space) {
    const Json byte_level = Json::Members{{"type", "ByteLevel"}, {"add_prefix_space", prefix_space},
                                          {"trim_offsets", true}, {"use_regex", p.regex == nullptr}};
    if (!p.regex && !p.digits) return byte_level;
    const Json first =
        p.digits ? Json(Json::Members{{"type", "Digits"}, {"individual_digits", true}})
                 : Json(Json::Members{{"type", "Split"}, {"pattern", Json::Members{{"Regex", p.regex}}},
                                      {"behavior", "Isolated"}, {"invert", false}});
    return Json::Members{{"type", "Sequence"}, {"pretokenizers", Json::List{first, byte_level}}};
}

}  // namespace unicode
