// Tasks: questions with answers to choose from, as a JSON lines file. data/README.md has the format.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json_value.h"

// What a continuation is worth: the sum of its tokens' log probabilities, per unit of its length.
enum class Rule : uint8_t {
    Sum,            // as it is
    Characters,     // per code point, without one space at the beginning
    Bytes,          // per byte of UTF-8, likewise
    Tokens,         // per token
    Greedy          // right where each token is the likeliest; the document has one continuation
};
inline constexpr std::array<const char*, 5> kRules = {"sum", "characters", "bytes", "tokens", "greedy"};

struct Document {
    Json id;                                // as in the file
    int label = 0;                          // the right continuation
    std::vector<std::string> contexts = {}, continuations = {};      // of each choice
};

struct EvalTask {
    std::string name;
    Rule accuracy = Rule::Sum;
    std::optional<Rule> accuracy_norm = {};
    std::vector<Document> documents = {};
};

// A file, or the name of FOLDER/NAME.jsonl. limit: documents to read; 0: all. A missing or wrong file ends in
// CHECK_INPUT with file, line, and what is wrong.
EvalTask load_task(const std::string& file_or_name, const std::string& folder, int64_t limit);
