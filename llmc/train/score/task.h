// Room train/score: scores of tasks: task files, requests, passes over the model, answers, results.
// Called by train_gpt.cu and train/run; train/log writes a result by write_result().
// The room knows log probabilities of tokens. It knows no checkpoint and no step of training.
//
// Tasks: questions with answers to choose from, as a JSON lines file. data/README.md has the format.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/json/json_value.h"

inline namespace scores {

// The value of a continuation. A space at the beginning of a continuation counts as no character and no byte.
enum class Rule : uint8_t {
    Sum,            // sum of the tokens' log probabilities
    Characters,     // sum / code points
    Bytes,          // sum / bytes of UTF-8
    Tokens,         // sum / tokens
    Greedy          // right if each token is the likeliest; documents have one continuation
};
inline constexpr std::array kRules = {"sum", "characters", "bytes", "tokens", "greedy"};

struct Document {
    Json id;                                // as in the file
    int label = 0;                          // the right continuation
    std::vector<std::string> contexts = {}, continuations = {};      // one of each per choice
    std::vector<int64_t> lines = {};        // line of each choice in the file
};

// A continuation as tokens, by requests.h.
struct Request {
    int document;
    std::vector<int32_t> tokens;        // context and continuation
    int scored;                         // number of continuation tokens, at the end of `tokens`
};

struct EvalTask {
    std::string name, path = {};
    Rule accuracy = Rule::Sum;              // the rule behind the result `accuracy`
    std::optional<Rule> accuracy_norm = {}; // the rule behind `accuracy_norm`; empty: no such result
    std::vector<Document> documents = {};
    std::vector<Request> requests = {};     // by load_tasks(), which drops the contexts
};

// Reads a file, or FOLDER/NAME.jsonl by its name. limit: documents to read; 0: all. A missing or invalid file
// ends in CHECK_INPUT, which names file, line and mistake.
EvalTask load_task(const std::string& file_or_name, const std::string& folder, int64_t limit);

}  // namespace scores
