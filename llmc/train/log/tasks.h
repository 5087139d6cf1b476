// Scores of eval.tasks: between two steps, or by --evaluate.
#pragma once
#include "llmc/base/config/config.h"
#include "llmc/train/score/answers.h"
#include "llmc/train/score/requests.h"

inline namespace logs {

struct LoadedTask {
    EvalTask task;                      // without contexts
    std::vector<Request> requests;      // its continuations, as the model will see them
};
// eval.tasks; without a tokenizer an error.
std::vector<LoadedTask> load_tasks(const Config& cfg, const std::optional<Tokenizer>& tokenizer);

// Adds a row to run_dir/evals.jsonl and replaces run_dir/answers/TASK.jsonl; a full disk is a warning. Rank 0
// alone.
void write_result(const std::string& run_dir, int64_t step, const TaskResult& result,
                  const std::string& answers);

// The result of the task "loss": a row in run_dir/evals.jsonl, and a table on the screen. Rank 0 alone.
struct WholeLoss { double loss; std::optional<double> bits_per_byte; int64_t tokens; };
void write_loss(const std::string& run_dir, int64_t step, const WholeLoss& r);

// "task, documents, accuracy, ..." in columns.
std::string table_of_results(std::span<const TaskResult> results);

// Scores of other models on these tasks by the same rules, from scripts/references.json; empty: none, or no
// file.
std::string published_scores(std::span<const LoadedTask> tasks, const std::string& references);

struct ScoredTask {
    TaskResult result;
    std::string answers;            // text of answers/TASK.jsonl
};

}  // namespace logs
