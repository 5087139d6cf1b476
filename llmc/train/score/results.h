// Scores as rows of files and tables on the screen.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "llmc/base/json/json.h"
#include "llmc/train/score/answers.h"

inline namespace scores {

// sqrt(a (1 - a) / (n - 1)): the standard error of an accuracy over n documents; not finite for n = 1.
double standard_error(double accuracy, int64_t documents);

// The members of a result, of rows in evals.jsonl and metrics.jsonl.
void add_to_row(JsonLine& row, const TaskResult& r);

// Adds a row to run_dir/evals.jsonl and replaces run_dir/answers/TASK.jsonl; a full disk is a warning. Rank 0
// alone.
void write_result(const std::string& run_dir, int64_t step, const ScoredTask& scored);

// The result of the task "loss": a row in run_dir/evals.jsonl, and a table on the screen. Rank 0 alone.
struct WholeLoss { double loss; std::optional<double> bits_per_byte; int64_t tokens; };
void write_loss(const std::string& run_dir, int64_t step, const WholeLoss& r);

// "task, documents, accuracy, ..." in columns.
std::string table_of_results(std::span<const TaskResult> results);

// Scores of other models on these tasks by the same rules, from scripts/references.json; empty: none, or no
// file.
std::string published_scores(std::span<const EvalTask> tasks, const std::string& references);

}  // namespace scores
