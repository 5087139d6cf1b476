// Task files of a few documents, for tests that train and score.
#pragma once
#include "test/program.h"

namespace test {

struct TaskDocument {
    std::string context = {};
    std::vector<std::string> continuations = {};
    size_t label = 0;
    std::vector<std::string> contexts = {};     // of each continuation, in place of `context`
};

// Writes NAME.jsonl and returns its path. rules: members of its first line, "accuracy": "sum" say.
inline std::string task_file(const std::string& name, const std::string& rules,
                             const std::vector<TaskDocument>& documents) {
    const std::string path = folder(name + ".jsonl");
    std::ofstream out(path);
    out << "{\"task\": \"" << name << "\", " << rules << "}\n";
    for (size_t d = 0; d < documents.size(); d++)
        for (size_t i = 0; i < documents[d].continuations.size(); i++)
            out << json{{"doc_id", d}, {"idx", i}, {"label", documents[d].label},
                        {"context", documents[d].contexts.empty() ? documents[d].context
                                                                 : documents[d].contexts.at(i)},
                        {"continuation", documents[d].continuations[i]}}.dump() << "\n";
    return path;
}

}  // namespace test
