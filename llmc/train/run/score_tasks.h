// Scores of tasks, computed by a model on all ranks.
#pragma once
#include "llmc/train/log/tasks.h"
#include "llmc/train/score/scores.h"

namespace PRECISION::inline runs {

// All ranks together; progress on rank 0. Nothing if a signal to any rank interrupted the work.
std::optional<ScoredTask> score_task(const LoadedTask& task, Scorer& scorer, Zero& zero, const Mesh& mesh);
// Scores of every task; nothing if interrupted.
std::optional<std::vector<ScoredTask>> score_tasks(const std::vector<LoadedTask>& tasks, Scorer& scorer,
                                                   Zero& zero, const Mesh& mesh);

}  // namespace PRECISION::runs
