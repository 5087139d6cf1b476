#include "llmc/train/run/score_tasks.h"

#include <cmath>

#include "llmc/train/step/health_meter.h"
#include "llmc/train/step/whole_tensors.h"

namespace PRECISION::inline runs {

std::optional<ScoredTask> score_task(const LoadedTask& task, Scorer& scorer, Zero& zero, const Mesh& mesh) {
    // A GPU launches two kernels in each block.
    const PassLimits limits = {.rows = scorer.own.rows, .joined = scorer.joined_rows(),
                               .segment_cost = ops::reached_by_host() ? 1 : 256};
    const std::vector<ScorePass> passes =
        passes_of_rank(pass_groups(task.requests, limits), mesh.dp.index, mesh.dp.size);
    std::optional<Progress> progress;
    if (mesh.rank == 0) progress.emplace(task.task.name, "tokens", uint64_t(tokens_of(passes)));
    const auto scores = score_requests(task.requests, passes, scorer, zero, mesh,
                                       progress ? &*progress : nullptr);
    if (!scores) return std::nullopt;
    for (const Score& s : *scores)
        if (!std::isfinite(s.logprob)) end_not_finite(zero.shards, task.task.name + ": log probabilities");
    const std::vector<TaskAnswer> answers = answers_of(task.task, *scores);
    return ScoredTask{result_of(task.task, answers), text_of_answers(task.task, answers, *scores)};
}

std::optional<std::vector<ScoredTask>> score_tasks(const std::vector<LoadedTask>& tasks, Scorer& scorer,
                                                   Zero& zero, const Mesh& mesh) {
    std::vector<ScoredTask> all;
    for (const LoadedTask& task : tasks) {
        auto scored = score_task(task, scorer, zero, mesh);
        if (!scored) return std::nullopt;
        all.push_back(std::move(*scored));
    }
    return all;
}

}  // namespace PRECISION::runs
