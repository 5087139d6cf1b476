#include "llmc/train/score/task.h"

#include <algorithm>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"

inline namespace scores {

static constexpr uint64_t kMostBytes = uint64_t(1) << 32;
static constexpr size_t kLongestName = 100;

// Where in a file, and a check that says so.
struct FileLine {
    const std::string& path;
    int64_t line = 1;

    void check(bool right, const std::string& why) const {
        CHECK_INPUT(right, "{}, line {}: {}", path, line, why);
    }
};

static Rule rule_of(const Json& word, const FileLine& at) {
    const auto found = std::find(kRules.begin(), kRules.end(), word.is_string() ? word.string() : "");
    std::string all;
    for (const char* rule : kRules) all += (all.empty() ? "" : ", ") + std::string(rule);
    at.check(found != kRules.end(),
             fmt::format("the rule is {}, expected one of {}", for_message(word), all));
    return Rule(found - kRules.begin());
}

// {"task": NAME, "accuracy": RULE, "accuracy_norm": RULE}
static EvalTask header_of(const Json& line, const FileLine& at) {
    const Json *name = line.find("task"), *accuracy = line.find("accuracy");
    const Json* norm = line.find("accuracy_norm");
    at.check(name && name->is_string() && accuracy, "the first line of a task has \"task\" and \"accuracy\", "
             "as in {\"task\": \"piqa\", \"accuracy\": \"sum\"}; found " + for_message(line));
    const std::string& text = name->string();
    const auto allowed = [](char c) { return c != '/' && (uint8_t(c) >= ' ' && c != '\x7f'); };
    at.check(!text.empty() && text.size() <= kLongestName && text[0] != '.' &&
                 std::all_of(text.begin(), text.end(), allowed),
             fmt::format("the name of the task is {}, expected the name of a file of at most {} bytes, "
                         "without a folder and control characters", for_message(*name), kLongestName));
    EvalTask task = {.name = text, .accuracy = rule_of(*accuracy, at), .accuracy_norm = {}, .documents = {}};
    if (norm && !norm->is_null()) task.accuracy_norm = rule_of(*norm, at);
    return task;
}

static const std::string& text_of(const Json& line, const char* key, const FileLine& at) {
    const Json* text = line.find(key);
    at.check(text && text->is_string(), fmt::format("expected \"{}\": a text; found {}", key,
                                                    text ? for_message(*text) : for_message(line)));
    return text->string();
}

static int64_t number_of(const Json& line, const char* key, const FileLine& at) {
    const Json* n = line.find(key);
    at.check(n && n->is_natural() && n->natural() <= INT32_MAX,
             fmt::format("expected \"{}\": a count from 0; found {}", key,
                         n ? for_message(*n) : for_message(line)));
    return int64_t(n->natural());
}

// A line is a continuation, of the last document or of a new one.
static void add_line(EvalTask& task, const Json& line, const FileLine& at) {
    const Json* id = line.find("doc_id");
    at.check(id != nullptr, "expected \"doc_id\", \"idx\", \"context\", \"continuation\" and \"label\"; "
             "found " + for_message(line));
    const int64_t label = number_of(line, "label", at), index = number_of(line, "idx", at);
    const bool again = !task.documents.empty() && task.documents.back().id == *id;
    if (!again) task.documents.push_back({.id = *id, .label = int(label)});
    Document& document = task.documents.back();
    const size_t next = document.contexts.size();
    at.check(index == int64_t(next),
             fmt::format("idx = {}, expected {}: the continuations of a document follow each other, from 0",
                         index, next));
    at.check(label == document.label,
             fmt::format("label = {}, but {} on the document's first line", label, document.label));
    document.contexts.push_back(text_of(line, "context", at));
    document.continuations.push_back(text_of(line, "continuation", at));
    document.lines.push_back(at.line);
    at.check(!document.continuations.back().empty(), "the continuation is empty");
}

// A document is whole where the next begins, or the file ends.
static void check_whole(const EvalTask& task) {
    if (task.documents.empty()) return;
    const Document& document = task.documents.back();
    const FileLine first{task.path, document.lines.front()};
    const int count = int(document.contexts.size());
    const bool greedy = task.accuracy == Rule::Greedy || task.accuracy_norm == Rule::Greedy;
    first.check(document.label < count,
                fmt::format("label = {}, but the document has {} continuation{}, from 0", document.label,
                            count, count == 1 ? "" : "s"));
    first.check(!greedy || count == 1,
                fmt::format("{} continuations, expected 1: the rule greedy asks whether the model writes the "
                            "continuation", count));
}

static Json parsed(std::string_view text, const FileLine& at) {
    try {
        const Json line = parse_json(text);
        at.check(line.is_object(), "expected an object; found " + for_message(line));
        return line;
    } catch (const std::exception& e) { at.check(false, e.what()); }
    __builtin_unreachable();
}

static std::string path_of_task(const std::string& given, const std::string& folder) {
    if (given.ends_with(".jsonl") || given.ends_with(".bin") || given.find('/') != given.npos) {
        CHECK_INPUT(file_exists(given), "the task {} is not there", given);
        return given;
    }
    const std::string path = folder + "/" + given + ".jsonl";
    CHECK_INPUT(file_exists(path), "the task '{}' is not there: no file {}. data/evals.py brings tasks into "
                "data/evals; eval.task_folder names another folder", given, path);
    return path;
}

// llm.c's sets for evaluations, hellaswag_val.bin, hold token ids.
static void check_text(const std::string& content, const std::string& path) {
    int32_t magic = 0;
    if (content.size() >= sizeof magic) memcpy(&magic, content.data(), sizeof magic);
    CHECK_INPUT(magic != 20240522, "{}: llm.c's file of an evaluation, of token ids. A task is a .jsonl file "
                "of texts here: data/evals.py brings hellaswag and others, --evaluate=hellaswag scores it",
                path);
}

EvalTask load_task(const std::string& given, const std::string& folder, int64_t limit) {
    const std::string path = path_of_task(given, folder), content = read_file(path, kMostBytes);
    check_text(content, path);
    EvalTask task;
    FileLine at{path};
    bool headed = false;
    for (size_t begin = 0; begin < content.size(); at.line++) {
        const size_t end = std::min(content.find('\n', begin), content.size());
        const std::string_view text = std::string_view(content).substr(begin, end - begin);
        begin = end + 1;
        if (text.find_first_not_of(" \t\r") == text.npos) continue;
        const Json line = parsed(text, at);
        if (!headed) {
            task = header_of(line, at);
            task.path = path;
            headed = true;
            continue;
        }
        const bool next = task.documents.empty() || line.get("doc_id") != task.documents.back().id;
        if (next) check_whole(task);
        if (next && limit && int64_t(task.documents.size()) == limit) return task;
        add_line(task, line, at);
    }
    const FileLine last{path, std::max(at.line - 1, int64_t(1))};
    last.check(!task.documents.empty(), "the file has no document");
    check_whole(task);
    return task;
}

}  // namespace scores
