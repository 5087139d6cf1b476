#include "llmc/train/score/scores.h"

#include "llmc/base/guard/signals.h"
#include "llmc/comm/votes.h"

namespace PRECISION {

// Passes at once: enough to fill a pipeline. Chunks that follow each other on one rank would wait for
// themselves: one pass at a time.
static size_t passes_at_once(const Scorer& scorer, const Mesh& mesh) {
    const bool one_chunk = scorer.part.chunks.size() == 1;
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
                std::vector<Score>* scores) {
    const std::vector<Action> actions =
        forward_schedule({mesh.pp.size, int(scorer.part.chunks.size()), int(passes.size())}, mesh.pp.index);
    zero.begin_step(block_order(scorer.part, actions));
    for (const Action& a : actions) {
        const ScorePass& pass = passes[size_t(a.micro)];
        const size_t message = scorer.message_count(pass.B * pass.T);
        switch (a.kind) {
            case Action::Forward: {
                const std::vector<TokenScore> tokens = scorer.forward(zero, pass, a.chunk);
                if (scores) add(*scores, pass, tokens);
                break;
            }
            case Action::Send: mesh.pp.send(scorer.output(), message, a.peer); break;
            case Action::Recv: mesh.pp.recv(scorer.input(), message, a.peer); break;
            case Action::Backward: CHECK(false, "scores: a backward");
        }
    }
}

// Each request was scored by one data-parallel rank's last stage, on all of tp.
static std::vector<Score> gathered(std::vector<Score> scores, std::span<const Request> requests,
                                   const std::vector<ScorePass>& mine, bool counts, const Axis& world) {
    std::vector<double> sums(2 * scores.size());
    for (const ScorePass& pass : mine)
        for (const int32_t r : pass.requests)
            if (counts) {
                sums[2 * size_t(r)] = scores[size_t(r)].logprob;
                sums[2 * size_t(r) + 1] = scores[size_t(r)].greedy;
            }
    if (world.size > 1) {
        std::vector<double> all(sums.size() * size_t(world.size));
        world.all_gather(all.data(), sums.data(), sums.size());
        std::fill(sums.begin(), sums.end(), 0);
        for (size_t i = 0; i < all.size(); i++) sums[i % sums.size()] += all[i];
    }
    for (size_t r = 0; r < scores.size(); r++)
        scores[r] = {sums[2 * r], requests[r].scored, sums[2 * r + 1] > 0};
    return scores;
}

std::optional<std::vector<Score>> score_requests(std::span<const Request> requests, Scorer& scorer,
                                                 Zero& zero, const Mesh& mesh,
                                                 const std::vector<PassGroup>& groups,
                                                 Progress* progress) {
    const std::vector<ScorePass> mine = passes_of_rank(groups, mesh.dp.index, mesh.dp.size);
    const std::span<const ScorePass> passes = mine;
    const size_t most = passes_at_once(scorer, mesh);
    std::vector<Score> scores(requests.size());
    for (size_t first = 0; first < passes.size(); first += most) {
        if (any_of(mesh.world, stop_asked())) return std::nullopt;
        const auto now = passes.subspan(first, std::min(most, passes.size() - first));
        run(now, scorer, zero, mesh, &scores);
        if (progress) progress->update(uint64_t(tokens_of(passes.first(first + now.size()))));
    }
    const bool counts = mesh.tp.index == 0 && scorer.part.last;
    return gathered(std::move(scores), requests, mine, counts, mesh.world);
}

// A pass whose tables have the right sizes.
static ScorePass pass_to_walk(int B, int T, int t0, bool begins, int scored) {
    ScorePass p = {.B = B, .T = T, .t0 = t0, .begins = begins};
    p.tokens.resize(size_t(B) * size_t(T));
    if (t0) p.from.resize(size_t(B));
    p.rows.resize(size_t(scored));
    p.targets.resize(p.rows.size());
    return p;
}

void walk_scores(Scorer& scorer, Zero& zero) {
    const int N = scorer.rows, maxT = std::min(scorer.d.maxT, kMostScored);
    const int few = std::min(8, maxT - 1), t0 = maxT - few;
    std::vector<ScorePass> passes = {pass_to_walk(N / maxT, maxT, 0, false, N),
                                     pass_to_walk(1, 1, 0, false, 1)};
    if (few > 0) {
        passes.push_back(pass_to_walk(N / t0, t0, 0, true, 0));
        passes.push_back(pass_to_walk(std::min(N / few, scorer.joined_rows() / maxT), few, t0, false, 1));
    }
    for (const ScorePass& pass : passes) {
        std::vector<Action> actions;
        for (size_t c = 0; c < scorer.part.chunks.size(); c++)
            actions.push_back({Action::Forward, int(c), 0});
        zero.begin_step(block_order(scorer.part, actions));
        for (const Action& a : actions) scorer.forward(zero, pass, a.chunk);
    }
}

}  // namespace PRECISION
