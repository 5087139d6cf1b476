// The continuations that a model chose, and how often it was right.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmc/train/score/task.h"

inline namespace scores {

// Of a continuation.
struct Score {
    double logprob = 0;         // of the continuation's tokens, in nats
    int tokens = 0;
    bool greedy = true;         // each token is the likeliest
};

struct TaskResult {
    std::string task;
    int64_t documents = 0, correct = 0;
    std::optional<int64_t> correct_norm;        // by the second rule
    double chance = 0;                          // of a right guess; 0 for greedy

    double accuracy() const { return double(correct) / double(documents); }
    double accuracy_norm() const { return double(*correct_norm) / double(documents); }
};

// answers: text of answers/TASK.jsonl, a line per document: doc_id, label, chosen, chosen_norm (by the second
// rule), logprob, tokens, greedy.
struct ScoredTask { TaskResult result; std::string answers; };

// Index of the best continuation by the rule, the first of equals; for Greedy 0 if right, else -1.
int choose(Rule rule, const Document& document, std::span<const Score> scores);

// Scores are those of requests_of(task), in their order.
ScoredTask judge(const EvalTask& task, std::span<const Score> scores);

}  // namespace scores
