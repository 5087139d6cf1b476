#include "llmc/train/score/requests.h"

#include <algorithm>

#include "llmc/base/check.h"
#include "llmc/base/utf8.h"
#include "llmc/model/score_pass.h"

inline namespace scores {

static bool is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
           c == 0x3000;
}

std::string_view without_space_at_end(std::string_view text) {
    while (!text.empty()) {
        size_t at = text.size() - 1;
        while (at > 0 && continues(uint8_t(text[at]))) at--;
        const Char last = decode_utf8(reinterpret_cast<const uint8_t*>(text.data()) + at, text.size() - at);
        if (at + last.bytes != text.size() || !is_space(last.code)) break;
        text = text.substr(0, at);
    }
    return text;
}

// Contexts of a document are often equal: each is encoded once in a row.
struct Contexts {
    const Tokenizer& tokenizer;
    std::string text = {};
    std::vector<int32_t> ids = {};

    const std::vector<int32_t>& encoded(std::string_view context) {
        if (ids.empty() || text != context) {
            text = context;
            ids = tokenizer.encode(context);
        }
        return ids;
    }
};

// Without a BOS, as lm-eval encodes by default. No tokens: the continuation has none.
static Request request_of(const std::string& context, const std::string& continuation, Contexts& contexts,
                          int most) {
    const Tokenizer& t = contexts.tokenizer;
    const std::string_view bare = without_space_at_end(context);
    Request r{};
    if (bare.empty()) r.tokens.push_back(int32_t(t.document_begin()));
    const std::vector<int32_t> left = bare.empty() ? std::vector<int32_t>() : contexts.encoded(bare);
    const std::vector<int32_t> whole = t.encode(context + continuation);
    if (whole.empty()) return {};
    // the continuation has a token at least, also where it joins the context's last
    const size_t cut = std::min(left.size(), whole.size() - 1);
    r.tokens.insert(r.tokens.end(), left.begin(), left.end());
    r.tokens.insert(r.tokens.end(), whole.begin() + int64_t(cut), whole.end());
    r.scored = int(std::min(whole.size() - cut, size_t(most)));
    if (r.tokens.size() > size_t(most) + 1) r.tokens.erase(r.tokens.begin(), r.tokens.end() - most - 1);
    return r;
}

std::vector<Request> requests_of(const EvalTask& task, const Tokenizer& tokenizer, int most) {
    std::vector<Request> requests;
    Contexts contexts{tokenizer};
    for (size_t d = 0; d < task.documents.size(); d++) {
        const Document& document = task.documents[d];
        for (size_t i = 0; i < document.contexts.size(); i++) {
            requests.push_back(request_of(document.contexts[i], document.continuations[i], contexts, most));
            requests.back().document = int(d);
            CHECK_INPUT(!requests.back().tokens.empty(),
                        "{}, line {}: task {}, doc_id {}: continuation {} has no token of this tokenizer",
                        task.path, document.lines.at(i), task.name, for_message(document.id), i);
        }
    }
    return requests;
}

std::vector<EvalTask> load_tasks(const Config& cfg, const std::optional<Tokenizer>& tokenizer) {
    CHECK_INPUT(cfg.eval.tasks.empty() || tokenizer, "eval.tasks needs a tokenizer; give "
                "--data.tokenizer=PATH");
    const int most = std::min(cfg.model.context, kMostScored);
    std::vector<EvalTask> tasks;
    for (const std::string& name : cfg.eval.tasks) {
        EvalTask task = load_task(name, cfg.eval.task_folder, cfg.eval.task_limit);
        for (const EvalTask& other : tasks)
            CHECK_INPUT(other.name != task.name, "eval.tasks: two tasks are named '{}'", task.name);
        task.requests = requests_of(task, *tokenizer, most);
        for (Document& document : task.documents) document.contexts.clear();    // the requests have them
        tasks.push_back(std::move(task));
    }
    return tasks;
}

}  // namespace scores
