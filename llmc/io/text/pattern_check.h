// Whether a vocabulary fits a pattern: a token across two matches is never made by merges, so a vocabulary
// with many such tokens was trained with another pattern.
#pragma once
#include <string>

#include "llmc/io/text/vocabulary.h"

inline namespace text {

// Tokens that no text yields by this pattern. Only tokens of ASCII are judged: Qwen's vocabulary has 1,671
// impossible tokens by its own pattern, all of other characters; GPT-2's, Llama 3's and o200k's have none.
struct ImpossibleTokens {
    size_t count = 0, tokens = 0;       // tokens: those judged
    std::string example;
};
ImpossibleTokens impossible_tokens(const Vocabulary& v, const Pattern& pattern);

// CHECK_INPUT: more impossible tokens than a vocabulary of the pattern has. name: the file's, for messages.
// stated: the file says its pattern, so a few tokens are no proof against it.
inline constexpr size_t kLeastStated = 16;
// A warning: no token has two digits, though the pattern, which the file does not state, keeps numbers whole.
// Smaller vocabularies may come from a text without numbers.
inline constexpr uint32_t kLeastJudged = 10'000;
void check_pattern(const Vocabulary& v, const std::string& name, bool stated);

}  // namespace text
