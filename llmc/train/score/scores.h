// Scores of tasks, computed by all ranks of a mesh together.
#pragma once
#include <optional>

#include "llmc/base/progress.h"
#include "llmc/model/infer/scorer.h"
#include "llmc/train/score/answers.h"
#include "llmc/train/score/passes.h"
#include "llmc/train/step/pipeline.h"
#include "llmc/train/step/zero.h"

namespace PRECISION::inline scores {

// All ranks together; progress on rank 0. Nothing if a signal to any rank interrupted the work.
std::optional<ScoredTask> score_task(const EvalTask& task, Scorer& scorer, Zero& zero, const Mesh& mesh);
// Scores of every task; nothing if interrupted.
std::optional<std::vector<ScoredTask>> score_tasks(std::span<const EvalTask> tasks, Scorer& scorer,
                                                   Zero& zero, const Mesh& mesh);

// The score of each request, equal on every rank; empty if a signal to any rank interrupted the work. passes:
// this rank's, by passes_of_rank(). progress: receives the tokens of completed passes. All ranks together.
std::optional<std::vector<Score>> score_requests(std::span<const Request> requests,
                                                 std::span<const ScorePass> passes, Scorer& scorer,
                                                 Zero& zero, const Mesh& mesh, Progress* progress = nullptr);

// For ranks that walk: score_requests() of the largest passes, and of small ones.
void walk_scores(Scorer& scorer, Zero& zero, const Mesh& mesh);

}  // namespace PRECISION::scores
