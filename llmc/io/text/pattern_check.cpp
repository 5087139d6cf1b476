#include "llmc/io/text/pattern_check.h"

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/io/unicode/pretokenize.h"

inline namespace text {

static bool is_ascii(std::string_view text) {
    for (const char c : text) if (uint8_t(c) >= 0x80) return false;
    return true;
}

// Whether one match has the whole text, where `before` and `behind` stand beside it.
static bool in_one_match(const Pattern& p, const char* before, std::string_view text, const char* behind) {
    const std::string front(before);
    std::string padded = front + std::string(text) + behind;
    const size_t n = padded.size();
    padded.append(kTextPadding, '\0');
    uint64_t few[4];
    std::vector<uint64_t> many(n > sizeof few * 8 ? (n + 63) / 64 : 0);
    uint64_t* starts = many.empty() ? few : many.data();
    p.mark_starts(padded.data(), n, starts);
    for (size_t i = front.size() + 1; i < front.size() + text.size(); i++)
        if (starts[i / 64] >> i % 64 & 1) return false;
    return true;
}

// A part of a match may need its neighbours: "'l" of "'ll", "\n " of "\n \n", "\n/" of o200k's ";\n/".
static bool is_possible(const Pattern& p, std::string_view text) {
    if (in_one_match(p, "", text, "")) return true;
    for (const char* before : {"", ".", "a"})
        for (const char* behind : {"", "\n", "l", "e", "t", ".", "a"})
            if (in_one_match(p, before, text, behind)) return true;
    return false;
}

ImpossibleTokens impossible_tokens(const Vocabulary& v, const Pattern& pattern) {
    ImpossibleTokens found;
    std::vector<bool> seen(v.size());
    for (const Merge& m : v.merges) {
        const std::string_view text = v.text_of(m.id);
        if (seen[m.id] || !is_ascii(text)) continue;
        seen[m.id] = true;
        found.tokens++;
        if (is_possible(pattern, text)) continue;
        if (found.count++ == 0) found.example = text;
    }
    return found;
}

// Real vocabularies: at most 0.05 in a thousand by their own pattern, at least 2.8 by another.
static bool fits(const ImpossibleTokens& found) { return found.count * 1000 <= found.tokens; }

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool has_number(std::string_view text) {
    for (size_t i = 1; i < text.size(); i++)
        if (is_digit(text[i - 1]) && is_digit(text[i])) return true;
    return false;
}

// Whether the vocabulary is of a pattern that splits numbers into digits.
static bool lacks_numbers(const Vocabulary& v) {
    if (v.size() < kLeastJudged) return false;
    for (uint32_t id = 0; id < v.size(); id++)
        if (!v.added[id] && has_number(v.text_of(id))) return false;
    return true;
}

// Names of the patterns that the vocabulary may be of.
static std::string likely_patterns(const Vocabulary& v, bool digits) {
    std::string names;
    for (const Pattern& p : patterns()) {
        if (digits && in_one_match(p, "", "12", "")) continue;
        if (fits(impossible_tokens(v, p))) names += (names.empty() ? "" : ", ") + std::string(p.name);
    }
    return names;
}

// By a pattern that keeps numbers whole such a vocabulary has nearly the same ids, and no impossible token.
static void warn_of_digits(const Vocabulary& v, const std::string& name) {
    if (!in_one_match(*v.pattern, "", "12", "") || !lacks_numbers(v)) return;
    const std::string others = likely_patterns(v, true);
    if (others.empty()) return;
    warning("{}: no token has two digits side by side, so the vocabulary is probably of a pattern that "
            "splits numbers\n       into digits ({}). Ids of some texts by {}, which is used, differ; "
            "./tokenize takes --pattern=NAME", name, others, v.pattern->name);
}

void check_pattern(const Vocabulary& v, const std::string& name, bool stated) {
    const ImpossibleTokens found = impossible_tokens(v, *v.pattern);
    if (fits(found) && !stated) warn_of_digits(v, name);
    if (fits(found) || (stated && found.count < kLeastStated)) return;
    const std::string others = likely_patterns(v, lacks_numbers(v));
    CHECK_INPUT(false, "{}: {} of {} tokens, such as {}, are never made by the pattern {}: ids by it would "
                "differ from the vocabulary's own. Possible\n"
                "       patterns are {}. For a .tiktoken file ./tokenize takes --pattern=NAME; encode then "
                "writes PREFIX_tokenizer.json, for data.tokenizer",
                name, found.count, found.tokens, json_string(found.example), v.pattern->name,
                others.empty() ? "none of " + pattern_names() : others);
}

}  // namespace text
