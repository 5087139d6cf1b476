#include "llmc/io/text/pattern_check.h"

#include "llmc/base/check.h"
#include "llmc/base/json.h"
#include "llmc/io/unicode/pretokenize.h"

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

void check_pattern(const Vocabulary& v, const std::string& name, bool stated) {
    const ImpossibleTokens found = impossible_tokens(v, *v.pattern);
    if (fits(found) || (stated && found.count < kLeastStated)) return;
    std::string others;
    for (const Pattern& p : patterns())
        if (fits(impossible_tokens(v, p))) others += (others.empty() ? "" : ", ") + std::string(p.name);
    CHECK_INPUT(false, "{}: {} of {} tokens, such as {}, are never made by the pattern {}: ids by it would "
                "differ from the vocabulary's own. Possible\n"
                "       patterns are {}. For a .tiktoken file ./tokenize takes --pattern=NAME; encode then "
                "writes PREFIX_tokenizer.json, for data.tokenizer",
                name, found.count, found.tokens, json_string(found.example), v.pattern->name,
                others.empty() ? "none of " + pattern_names() : others);
}
