// What a model chose, and how often it was right.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llmc/base/json.h"
#include "llmc/train/score/task.h"

inline namespace scores {

// Of a continuation.
struct Score {
    double logprob = 0;         // of the continuation's tokens, in nats
    int tokens = 0;
    bool greedy = true;         // each token is the likeliest
};

// chosen: index of the best continuation by the rule, the first of equals; for Greedy 0 if right, else -1.
// chosen_norm: by the second rule; -1 without one.
struct TaskAnswer { int chosen = -1, chosen_norm = -1; };

struct TaskResult {
    std::string task;
    int64_t documents = 0, correct = 0;
    std::optional<int64_t> correct_norm;        // by the second rule
    double chance = 0;                          // of a right guess; 0 for greedy

    double accuracy() const { return double(correct) / double(documents); }
    double accuracy_norm() const { return double(*correct_norm) / double(documents); }
};

// sqrt(a (1 - a) / (n - 1)): the standard error of an accuracy over n documents; not finite for n = 1.
double standard_error(double accuracy, int64_t documents);

// Scores are those of requests_of(task), in their order.
std::vector<TaskAnswer> answers_of(const EvalTask& task, std::span<const Score> scores);
TaskResult result_of(const EvalTask& task, std::span<const TaskAnswer> answers);

// The members of a result, of rows in evals.jsonl and metrics.jsonl.
void add_to_row(JsonLine& row, const TaskResult& r);

// A line per document: doc_id, label, chosen, chosen_norm, logprob, tokens, greedy.
std::string text_of_answers(const EvalTask& task, std::span<const TaskAnswer> answers,
                            std::span<const Score> scores);

}  // namespace scores
