// EvalTask files: what is read, and what is refused with file and line.
#include <fstream>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/train/score/task.h"
#include "test/shards.h"
#include "test/test.h"

using std::string;
using std::vector;

static const string kHead = R"({"task": "t", "accuracy": "sum", "accuracy_norm": "characters"})";

static string line(const string& id, int index, int label) {
    return fmt::format(R"({{"doc_id": {}, "idx": {}, "context": "the", "continuation": " end{}", )"
                       R"("label": {}}})", id, index, index, label);
}
static string file_of(const vector<string>& lines, const string& name = "t.jsonl") {
    const string path = test::folder(name);
    string text;
    for (const string& l : lines) text += l + "\n";
    write_file(path, text);
    return path;
}

TEST(documents_follow_each_other) {
    const string path = file_of({kHead, "", line("7", 0, 1), line("7", 1, 1), line("\"x\"", 0, 0),
                                 line("7", 0, 0), "  "});
    const EvalTask t = load_task(path, "", 0);
    EXPECT(t.name == "t" && t.accuracy == Rule::Sum && t.accuracy_norm == Rule::Characters, "%s",
           t.name.c_str());
    EXPECT(t.documents.size() == 3, "%zu documents", t.documents.size());
    EXPECT(t.documents[0].id == Json(7) && t.documents[1].id == Json("x"), "ids");
    EXPECT(t.documents[0].label == 1 && t.documents[0].continuations == vector<string>({" end0", " end1"}),
           "first document");
    EXPECT(load_task(path, "", 2).documents.size() == 2, "a limit");
    // by its name in a folder; what follows the limit is not read
    file_of({kHead, line("1", 0, 0), line("2", 0, 0), "{"}, "named.jsonl");
    EXPECT(load_task("named", test::temporary_directory(), 1).documents.size() == 1, "by name");
}

struct Mistake { vector<string> lines; string told; };

TEST(mistakes_are_told_with_file_and_line) {
    const Mistake mistakes[] = {
        {{kHead, line("1", 0, 0), "{\"doc_id\": 1, \"idx\""}, "t.jsonl, line 3: "},
        {{line("1", 0, 0)}, R"(line 1: the first line of a task has "task" and "accuracy")"},
        {{R"({"task": "t", "accuracy": "best"})"},
         "line 1: the rule is \"best\", expected one of sum, characters, bytes, tokens, greedy"},
        {{R"({"task": "a/b", "accuracy": "sum"})"},
         "expected the name of a file of at most 100 bytes, without a folder"},
        {{kHead, "[1]"}, "line 2: expected an object; found [1]"},
        {{kHead, line("1", 1, 0)}, "line 2: idx = 1, expected 0"},
        {{kHead, line("1", 0, 0), line("1", 1, 1)}, "line 3: label = 1, but 0 on the document's first line"},
        {{kHead, line("1", 0, 7), line("1", 1, 7)},
         "line 2: label = 7, but the document has 2 continuations, from 0"},
        {{kHead, line("1", 0, 0), line("2", 0, 1), line("3", 0, 0)},
         "line 3: label = 1, but the document has 1 continuation, from 0"},
        {{kHead, R"({"doc_id": 1, "idx": 0, "context": 3, "continuation": "a", "label": 0})"},
         "line 2: expected \"context\": a text; found 3"},
        {{kHead, R"({"doc_id": 1, "idx": 0, "context": "a", "continuation": "", "label": 0})"},
         "line 2: the continuation is empty"},
        {{kHead, R"({"doc_id": 1, "idx": 0, "context": "a", "continuation": "b", "label": -1})"},
         "expected \"label\": a count from 0; found -1"},
        {{kHead, R"({"doc_id": 1, "idx": 0, "context": "a", "continuation": "b", )"
                 R"("label": 18446744073709551615})"},
         "expected \"label\": a count from 0; found 18446744073709551615"},
        {{kHead, R"({"doc_id": 1, "idx": 0, "context": "a", "continuation": "b", )"
                 R"("label": 4294967296})"},
         "expected \"label\": a count from 0; found 4294967296"},
        {{R"({"task": "a\u001b[2J", "accuracy": "sum"})"}, "without a folder and control characters"},
        {{R"({"task": "a\u0000", "accuracy": "sum"})"}, "without a folder and control characters"},
        {{R"({"task": ")" + string(101, 'a') + R"(", "accuracy": "sum"})"}, "a file of at most 100 bytes"},
        {{kHead, R"({"idx": 0})"}, "line 2: expected \"doc_id\", \"idx\""},
        {{R"({"task": "t", "accuracy": "greedy"})", line("1", 0, 0), line("1", 1, 0)},
         "line 2: 2 continuations, expected 1: the rule greedy"},
        {{R"({"task": "t", "accuracy": "greedy"})", line("1", 0, 0), line("2", 0, 0), line("2", 1, 0), "",
          line("3", 0, 0)},
         "line 3: 2 continuations, expected 1: the rule greedy"},
        {{kHead}, "line 1: the file has no document"},
        {{kHead, "", ""}, "line 3: the file has no document"},
        {{}, "line 1: the file has no document"}};
    for (const Mistake& m : mistakes) {
        const string path = file_of(m.lines);
        const Fatal e = test::fatal_of([&] { load_task(path, "", 0); });
        EXPECT(e.code == kExitConfig && string(e.what()).find(m.told) != string::npos &&
               string(e.what()).find(path) != string::npos,
               "expected '%s', found '%s'", m.told.c_str(), e.what());
    }
    const string llmc = test::temporary_directory() + "/hellaswag_val.bin";
    const int32_t header[256] = {20240522, 1, 10042};
    std::ofstream(llmc, std::ios::binary).write(reinterpret_cast<const char*>(header), sizeof header);
    const std::pair<string, string> missing[] = {
        {llmc, "hellaswag_val.bin: llm.c's file of an evaluation"},
        {"gone.bin", "the task gone.bin is not there"},
        {"nosuch", "the task 'nosuch' is not there: no file evals/nosuch.jsonl. data/evals.py brings"},
        {"./no.jsonl", "the task ./no.jsonl is not there"}};
    for (const auto& [name, told] : missing) {
        const Fatal e = test::fatal_of([&, n = name] { load_task(n, "evals", 0); });
        EXPECT(e.code == kExitConfig && string(e.what()).find(told) != string::npos, "%s", e.what());
    }
}
