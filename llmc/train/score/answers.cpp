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
        default: return 1;
    }
}

static int choose(Rule rule, const Document& document, std::span<const Score> scores) {
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

std::vector<TaskAnswer> answers_of(const EvalTask& task, std::span<const Score> scores) {
    std::vector<TaskAnswer> answers;
    for (const Document& document : task.documents) {
        const auto own = scores.first(document.continuations.size());
        scores = scores.subspan(own.size());
        answers.push_back({.chosen = choose(task.accuracy, document, own)});
        if (task.accuracy_norm) answers.back().chosen_norm = choose(*task.accuracy_norm, document, own);
    }
    return answers;
}

TaskResult result_of(const EvalTask& task, std::span<const TaskAnswer> answers) {
    TaskResult r = {.task = task.name, .documents = int64_t(answers.size()), .correct_norm = {}};
    if (task.accuracy_norm) r.correct_norm = 0;
    for (size_t d = 0; d < answers.size(); d++) {
        const Document& document = task.documents[d];
        r.correct += answers[d].chosen == document.label;
        if (r.correct_norm) *r.correct_norm += answers[d].chosen_norm == document.label;
        if (task.accuracy != Rule::Greedy) r.chance += 1 / double(document.continuations.size());
    }
    r.chance /= std::max(1., double(answers.size()));
    return r;
}

double standard_error(double accuracy, int64_t documents) {
    return std::sqrt(accuracy * (1 - accuracy) / double(documents - 1));
}

void add_to_row(JsonLine& row, const TaskResult& r) {
    row.add("task", r.task).add("documents", r.documents).add("correct", r.correct)
        .add("accuracy", r.accuracy()).add("stderr", standard_error(r.accuracy(), r.documents))
        .add("chance", r.chance);
    if (r.correct_norm)
        row.add("correct_norm", *r.correct_norm).add("accuracy_norm", r.accuracy_norm())
            .add("stderr_norm", standard_error(r.accuracy_norm(), r.documents));
}

std::string text_of_answers(const EvalTask& task, std::span<const TaskAnswer> answers,
                            std::span<const Score> scores) {
    std::string text;
    for (size_t d = 0; d < answers.size(); d++) {
        const Document& document = task.documents[d];
        Json::Members row = {{"doc_id", document.id}, {"label", document.label},
                             {"chosen", answers[d].chosen}};
        if (task.accuracy_norm) row.emplace_back("chosen_norm", answers[d].chosen_norm);
        Json::List logprob, tokens, greedy;
        for (const Score& s : scores.first(document.continuations.size())) {
            logprob.push_back(s.logprob);
            tokens.push_back(s.tokens);
            greedy.push_back(s.greedy);
        }
        scores = scores.subspan(document.continuations.size());
        row.emplace_back("logprob", std::move(logprob));
        row.emplace_back("tokens", std::move(tokens));
        row.emplace_back("greedy", std::move(greedy));
        text += to_text(std::move(row)) + "\n";
    }
    return text;
}

}  // namespace scores
