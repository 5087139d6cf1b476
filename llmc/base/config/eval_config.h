// Settings of what interrupts training: evaluations, scores of tasks, texts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config/visit.h"

inline namespace config {

struct EvalConfig {
    static constexpr int64_t kTokens = 1 << 19;         // evaluated at most where batches = -1
    int64_t every = 250, batches = -1;
    std::vector<std::string> tasks;
    int64_t task_every = 0, task_limit = 0;
    std::string task_folder = "data/evals";

    bool due(int64_t step, bool last) const { return every && (last || step % every == 0); }
    // Rows to evaluate of a set. batch_rows: of a step; context: tokens of a row.
    uint64_t rows_of(uint64_t set_rows, uint64_t batch_rows, uint64_t context) const {
        if (batches == 0) return set_rows;
        const uint64_t most =
            batches > 0 ? uint64_t(batches) * batch_rows : (kTokens + context - 1) / context;
        return most < set_rows ? most : set_rows;
    }
    bool tasks_due(int64_t step, bool last) const {
        return !tasks.empty() && (last || (task_every && step % task_every == 0));
    }

    template <class F> void visit(F&& f) {
        f("every", every,
          "steps between evaluations, also before the first step and after the last; 0: never", at_least(0));
        f("batches", batches, "batches of train.batch_tokens, always the same rows; 0: every row of the set; "
          "-1: every row, 524,288 tokens of them at most", range(-1, kMany));
        f("tasks", tasks, "tasks to score, by name or file (data/evals.py brings some); needs "
          "data.tokenizer");
        f("task_every", task_every, "steps between scores of the tasks, also before the first step and after "
          "the last; 0: after the last step alone", at_least(0));
        f("task_limit", task_limit, "documents of a task, from its first; 0: all", range(0, kMany));
        f("task_folder", task_folder, "folder searched for task names");
    }
};

struct SampleConfig {
    int64_t every = 500;
    int tokens = 64;
    double temperature = 0.8;
    int top_k = 0;
    double top_p = 0.95;
    std::string prompt = "Once upon a time";

    bool due(int64_t step, bool last) const { return every && (last || (step > 0 && step % every == 0)); }

    template <class F> void visit(F&& f) {
        f("every", every, "steps between samples of text, also after the last step; 0: never; needs "
          "data.tokenizer", at_least(0));
        f("tokens", tokens, "tokens to generate", range(1, 1 << 24));
        f("temperature", temperature, "divides the logits; 0: always the likeliest token", range(0, 100));
        f("top_k", top_k, "draw among the k likeliest tokens; 0: among all", range(0, 1 << 24));
        f("top_p", top_p, "draw among the likeliest tokens that hold this much probability; 1: among all",
          range(0, 1));
        f("prompt", prompt, "text to continue, behind the token that begins a document: BOS where the "
          "tokenizer's template adds one, else end-of-text; empty: that token alone");
    }
};

}  // namespace config
