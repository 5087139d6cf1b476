// The pre-tokenizations of today's models: a row each.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "llmc/base/json/json_value.h"
#include "llmc/io/unicode/pretokenize.h"

inline namespace unicode {

struct Pattern {
    const char* name;               // in --pattern=
    const char* regex;              // of tokenizer.json's Split; nullptr: ByteLevel's own, GPT-2's
    bool digits;                    // Digits(individual_digits) come first
    // Defaults of the family, used by training.
    bool nfc;                       // text is normalized to NFC
    bool ignore_merges;             // a match in the vocabulary becomes its token
    MarkStarts* mark_starts;
};

std::span<const Pattern> patterns();                        // GPT-2's is the first
const Pattern* pattern_named(std::string_view name);        // nullptr: unknown
std::string pattern_names();                                // for messages

// From tokenizer.json's "pre_tokenizer". An unknown pre_tokenizer ends in CHECK_INPUT with its JSON or regex.
// prefix_space: ByteLevel's add_prefix_space, which only GPT-2's pattern may have.
const Pattern& pattern_of_json(const Json& pre_tokenizer, const std::string& file, bool& prefix_space);
Json json_of_pattern(const Pattern& pattern, bool prefix_space = false);

}  // namespace unicode
