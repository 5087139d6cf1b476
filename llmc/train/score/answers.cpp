#include "llmc/train/score/answers.h"

#include <cmath>

#include "llmc/base/utf8.h"

inline namespace scores {

static double characters_of(std::string_view text) {
    double count = 0;
    for (const char c : text) count += !continues(uint8_t(c));
    return count;
}

// What the sum of log probabilities is divided by.
static double length_of(Rule rule, std::string_view continuation, const Score& score) {
    const std::string_view text = continuation.starts_with(' ') ? continuation.substr(1) : continuation;
    switch (rule) {
        case Rule::Characters: return std::max(1., characters_of(text));
        case Rule::Bytes: return std::max(1., double(text.size()));
        case Rule::Tokens: return score.tokens;
        case Rule::Sum:
        case Rule::Greedy: break;
    }
    return 1;
}

int choose(Rule rule, const Document& document, std::span<const Score> scores) {
    if (rule == Rule::Greedy) return scores[0].greedy ? 0 : -1;
    int best = -1;                              // all are NaN
    double largest = -INFINITY;
    for (size_t i = 0; i < scores.size(); i++) {
        const double value = scores[i].logprob / length_of(rule, document.continuations[i], scores[i]);
        if (best < 0 ? !std::isnan(value) : value > largest) {
            best = int(i);
            largest = value;
        }
    }
    return best;
}

ScoredTask judge(const EvalTask& task, std::span<const Score> scores) {
    TaskResult r = {.task = task.name, .documents = int64_t(task.documents.size()), .correct_norm = {}};
    if (task.accuracy_norm) r.correct_norm = 0;
    std::string answers;
    for (const Document& document : task.documents) {
        const auto own = scores.first(document.continuations.size());
        scores = scores.subspan(own.size());
        const int chosen = choose(task.accuracy, document, own);
        r.correct += chosen == document.label;
        if (task.accuracy != Rule::Greedy) r.chance += 1 / double(own.size());
        Json::Members row = {{"doc_id", document.id}, {"label", document.label}, {"chosen", chosen}};
        if (task.accuracy_norm) {
            const int chosen_norm = choose(*task.accuracy_norm, document, own);
            *r.correct_norm += chosen_norm == document.label;
            row.emplace_back("chosen_norm", chosen_norm);
        }
        Json::List logprob, tokens, greedy;
        for (const Score& s : own) {
            logprob.push_back(s.logprob);
            tokens.push_back(s.tokens);
            greedy.push_back(s.greedy);
        }
        row.emplace_back("logprob", std::move(logprob));
        row.emplace_back("tokens", std::move(tokens));
        row.emplace_back("greedy", std::move(greedy));
        answers += to_text(std::move(row)) + "\n";
    }
    r.chance /= double(r.documents);
    return {std::move(r), std::move(answers)};
}

}  // namespace scores
