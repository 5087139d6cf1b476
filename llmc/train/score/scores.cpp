#include "llmc/train/score/scores.h"

#include <cmath>

#include "llmc/base/guard/signals.h"
#include "llmc/comm/votes.h"
#include "llmc/train/step/whole_tensors.h"

namespace PRECISION::inline scores {

// Passes at once: enough to fill a pipeline. Chunks that follow each other on one rank would wait for
// themselves: one pass at a time.
static size_t passes_at_once(const Scorer& scorer, const Mesh& mesh) {
    const bool one_chunk = scorer.own.part.chunks.size() == 1;
    return one_chunk ? 4 * size_t(mesh.pp.size) : 1;
}

// Sums up the scores of tokens; the ranks of tp have the same.
static void add(std::vector<Score>& scores, const ScorePass& pass, const std::vector<TokenScore>& tokens) {
    for (size_t i = 0; i < tokens.size(); i++) {
        Score& s = scores[size_t(pass.requests[i])];
        s.logprob += tokens[i].logprob;
        s.greedy &= tokens[i].likeliest;
    }
}

static void run(std::span<const ScorePass> passes, Scorer& scorer, Zero& zero, const Mesh& mesh,
                std::vector<Score>& scores) {
    const Part& part = scorer.own.part;
    const std::vector<Action> actions =
        forward_schedule({mesh.pp.size, int(part.chunks.size()), int(passes.size())}, mesh.pp.index);
    zero.begin_step(block_order(part, actions));
    for (const Action& a : actions) {
        const ScorePass& pass = passes[size_t(a.micro)];
        const size_t message = scorer.own.message_count(pass.N());
        switch (a.kind) {
            case Action::Forward: add(scores, pass, scorer.forward(zero, pass, a.chunk)); break;
            case Action::Send: mesh.pp.send(scorer.own.output(), message, a.peer); break;
            case Action::Recv: mesh.pp.recv(scorer.own.input(), message, a.peer); break;
            case Action::Backward:
            case Action::Weight: CHECK(false, "scores: a backward");
        }
    }
}

// Each request was scored by one data-parallel rank's last stage, on all of tp.
static std::vector<Score> gathered(const std::vector<Score>& mine, std::span<const Request> requests,
                                   std::span<const ScorePass> passes, bool counts, const Axis& world) {
    std::vector<double> sums(2 * mine.size());
    for (const ScorePass& pass : passes)
        for (const int32_t r : pass.requests)
            if (counts) {
                sums[2 * size_t(r)] = mine[size_t(r)].logprob;
                sums[2 * size_t(r) + 1] = mine[size_t(r)].greedy;
            }
    sum_over(world, std::span(sums));
    std::vector<Score> scores;
    for (size_t r = 0; r < mine.size(); r++)
        scores.push_back({sums[2 * r], requests[r].scored, sums[2 * r + 1] > 0});
    return scores;
}

std::optional<std::vector<Score>> score_requests(std::span<const Request> requests,
                                                 std::span<const ScorePass> passes, Scorer& scorer,
                                                 Zero& zero, const Mesh& mesh, Progress* progress) {
    const size_t most = passes_at_once(scorer, mesh);
    std::vector<Score> scores(requests.size());
    int64_t done = 0;
    for (size_t first = 0; first < passes.size(); first += most) {
        if (any_of(mesh.world, stop_asked())) return std::nullopt;
        const auto now = passes.subspan(first, std::min(most, passes.size() - first));
        run(now, scorer, zero, mesh, scores);
        done += tokens_of(now);
        if (progress) progress->update(uint64_t(done));
    }
    const bool counts = mesh.tp.index == 0 && mesh.cp.index == 0 && scorer.own.part.last;
    return gathered(scores, requests, passes, counts, mesh.world);
}

std::optional<ScoredTask> score_task(const EvalTask& task, Scorer& scorer, Zero& zero, const Mesh& mesh) {
    // A GPU launches two kernels in each block.
    const PassLimits limits = {.rows = scorer.own.rows, .joined = scorer.joined_rows(),
                               .segment_cost = ops::reached_by_host() ? 1 : 256};
    const std::vector<ScorePass> passes =
        passes_of_rank(pass_groups(task.requests, limits), mesh.dp.index, mesh.dp.size);
    std::optional<Progress> progress;
    if (mesh.rank == 0) progress.emplace(task.name, "tokens", uint64_t(tokens_of(passes)));
    const auto scores = score_requests(task.requests, passes, scorer, zero, mesh,
                                       progress ? &*progress : nullptr);
    if (!scores) return std::nullopt;
    for (const Score& s : *scores)
        if (!std::isfinite(s.logprob)) end_not_finite(zero.shards, task.name + ": log probabilities");
    return judge(task, *scores);
}

std::optional<std::vector<ScoredTask>> score_tasks(std::span<const EvalTask> tasks, Scorer& scorer,
                                                   Zero& zero, const Mesh& mesh) {
    std::vector<ScoredTask> all;
    for (const EvalTask& task : tasks) {
        auto scored = score_task(task, scorer, zero, mesh);
        if (!scored) return std::nullopt;
        all.push_back(std::move(*scored));
    }
    return all;
}

// A pass whose tables have the right sizes; all is scored for request 0.
static ScorePass pass_to_walk(const Segment& s, bool is_prefix, int scored) {
    ScorePass p = {.segments = {s}, .is_prefix = is_prefix};
    p.tokens.resize(size_t(s.B) * size_t(s.T));
    p.from.resize(size_t(s.B));
    p.rows.resize(size_t(scored));
    p.targets.resize(p.rows.size());
    p.requests.resize(p.rows.size());
    return p;
}

void walk_scores(Scorer& scorer, Zero& zero, const Mesh& mesh) {
    const int N = scorer.own.rows, maxT = std::min(scorer.own.d.maxT, kMostScored);
    const int few = std::min(8, maxT - 1), t0 = maxT - few;
    std::vector<ScorePass> passes = {pass_to_walk({.B = N / maxT, .T = maxT}, false, N),
                                     pass_to_walk({.B = 1, .T = 1}, false, 1)};
    if (few > 0) {
        const int B = std::min(N / few, scorer.joined_rows() / maxT);
        passes.push_back(pass_to_walk({.B = N / t0, .T = t0}, true, 0));
        passes.push_back(pass_to_walk({.B = B, .T = few, .t0 = t0}, false, 1));
    }
    score_requests(std::vector<Request>(1), passes, scorer, zero, mesh);
}

}  // namespace PRECISION::scores
