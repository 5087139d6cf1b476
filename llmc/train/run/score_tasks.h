// Scores of tasks, computed by a model on all ranks.
#pragma once
#include "llmc/train/run/tasks.h"
#include "llmc/train/score/scores.h"

namespace PRECISION {

// Of each task; none if a signal to any rank interrupted the work. All ranks together; progress on rank 0.
std::optional<std::vector<ScoredTask>> score_tasks(const std::vector<LoadedTask>& tasks, Scorer& scorer,
                                                   Zero& zero, const Mesh& mesh);

}  // namespace PRECISION
