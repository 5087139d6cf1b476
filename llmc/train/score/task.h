// Tasks: questions with answers to choose from, as a JSON lines file. data/README.md has the format.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json_value.h"

// The value of a continuation. A space that begins the continuation is no character and no byte of it.
enum class Rule : uint8_t {
    Sum,            // sum of the tokens' log probabilities
    Characters,     // sum / code points
    Bytes,          // sum / bytes of UTF-8
    Tokens,         // sum / tokens
    Greedy          // right where each token is the likeliest. The document has one continuation
};
inline constexpr std::array<const char*, 5> kRules = {"sum", "characters", "bytes", "tokens", "greedy"};

struct Document {
    Json id;                                // as in the file
    int label = 0;                          // the right continuation
    std::vector<std::string> contexts = {}, continuations = {};      // of each choice
    std::vector<int64_t> lines = {};        // of the file, of each choice
};

struct EvalTask {
    std::string name, path = {};
    Rule accuracy = Rule::Sum;
    std::optional<Rule> accuracy_norm = {};
    std::vector<Document> documents = {};
};

// A file, or the name of FOLDER/NAME.jsonl. limit: documents to read; 0: all. A missing or wrong file ends in
// CHECK_INPUT with file, line, and what is wrong.
EvalTask load_task(const std::string& file_or_name, const std::string& folder, int64_t limit);
