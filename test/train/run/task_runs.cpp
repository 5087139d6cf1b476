// Scores of tasks as a user meets them: while a model trains, after a resume, and by --evaluate.
#include <filesystem>

#include "test/own_processes.h"
#include "test/task_file.h"

using std::string;
using std::vector;
using namespace test;

// Words that end a line of the training text.
static vector<TaskDocument> documents_of(size_t choices) {
    const char* words[] = {" the small", " a model", " reads line", " text", " zebra"};
    vector<TaskDocument> documents;
    for (size_t d = 0; d < 12; d++) {
        TaskDocument document{.context = "the small model reads" + string(d, '.'), .continuations = {},
                              .label = d % choices};
        for (size_t i = 0; i < choices; i++) document.continuations.push_back(words[(d + 2 * i) % 5]);
        documents.push_back(document);
    }
    return documents;
}

static json task_config() {
    json cfg = text_config();
    cfg["checkpoint"] = {{"every", 10}, {"keep_last", 9}};
    cfg["eval"]["tasks"] = {
        task_file("choices", R"("accuracy": "sum", "accuracy_norm": "bytes")", documents_of(3)),
        task_file("greedy", R"("accuracy": "greedy")", documents_of(1))};
    cfg["eval"]["task_every"] = 10;
    return cfg;
}

static string rows_of_tasks(const string& run) {
    string text;
    for (const json& row : rows_of(run, "task")) text += row.dump() + "\n";
    return text;
}
static int lines_in(const string& path) {
    const string text = text_of(path);
    return int(std::count(text.begin(), text.end(), '\n'));
}

TEST(tasks_are_scored_while_a_model_trains) {
    const string config = tiny_program_config("tasks", task_config());
    const Ran ran = train_gpt(config);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(steps_of("tasks", "task") == vector<int>({0, 0, 10, 10, 20, 20}), "%s",
           rows_of_tasks("tasks").c_str());
    const string dir = folder("tasks");
    EXPECT(lines_in(dir + "/evals.jsonl") == 6 && lines_in(dir + "/answers/choices.jsonl") == 12,
           "evals.jsonl or answers");
    EXPECT(ran.out.find("task  choices ") != string::npos, "%s", ran.out.c_str());

    // files and folders by link, and a part of a row, in the place of scores
    const string mine = folder("mine"), others = folder("others"), scores = text_of(dir + "/evals.jsonl");
    std::ofstream(mine) << scores << "{\"event\":\"ta";
    std::filesystem::remove_all(dir + "/answers");
    std::filesystem::create_directories(others);
    std::filesystem::create_directory_symlink(others, dir + "/answers");
    std::filesystem::remove(dir + "/evals.jsonl");
    std::filesystem::create_hard_link(mine, dir + "/evals.jsonl");
    const Ran by_link = train_gpt(config, "--evaluate=" + folder("choices.jsonl"));
    const string after = text_of(dir + "/evals.jsonl");
    EXPECT(by_link.code == 0 && by_link.err.find("answers is a link") != string::npos, "%d '%s'",
           by_link.code, by_link.err.c_str());
    EXPECT(after.starts_with(scores + "{\"event\":\"task\"") && lines_in(dir + "/evals.jsonl") == 7, "'%s'",
           after.c_str());
    EXPECT(text_of(mine).ends_with("\"ta") && std::filesystem::is_empty(others), "written through a link");
    std::filesystem::remove(dir + "/answers");
    std::ofstream(dir + "/evals.jsonl") << scores;

    // the steps are those of a run without tasks
    const Ran plain = train_gpt(config, "--eval.tasks=[] --run.dir=" + folder("plain"));
    EXPECT(plain.code == 0, "%s", plain.err.c_str());
    const vector<json> with = rows_of("tasks", "train"), without = rows_of("plain", "train");
    for (size_t i = 0; i < with.size(); i++)
        EXPECT(with[i]["loss"] == without[i]["loss"] && with[i]["norm"] == without[i]["norm"], "step %zu",
               i + 1);

    // resumed at 10: each row stands once
    const string straight = timeless("tasks"), evals = text_of(folder("tasks") + "/evals.jsonl");
    std::filesystem::remove_all(folder("tasks") + "/step_20");
    const Ran again = train_gpt(config);
    EXPECT(again.code == 0, "%s", again.err.c_str());
    string resumed;
    std::istringstream rows(timeless("tasks"));
    for (string row; std::getline(rows, row);)
        if (row.find("\"resume\"") == string::npos) resumed += row + "\n";
    EXPECT(resumed == straight, "'%s' '%s'", resumed.c_str(), straight.c_str());
    EXPECT(text_of(folder("tasks") + "/evals.jsonl") == evals, "evals.jsonl");

    // by --evaluate: the newest checkpoint has the last rows
    const string both = folder("choices.jsonl") + "," + folder("greedy.jsonl");
    const Ran scored = train_gpt(config, "--evaluate=" + both);
    EXPECT(scored.code == 0 && scored.out.find("choices         12") != string::npos, "code %d, '%s' '%s'",
           scored.code, scored.out.c_str(), scored.err.c_str());
    const string now = text_of(folder("tasks") + "/evals.jsonl");
    EXPECT(now == evals + evals.substr(evals.find("{\"event\":\"task\",\"step\":20")), "'%s'", now.c_str());
}

TEST(published_scores_stand_below_the_table) {
    json settings = task_config();
    settings["eval"]["tasks"] = json::array();
    const string config = tiny_program_config("published", settings), path = folder("hellaswag.jsonl");
    EXPECT(train_gpt(config).code == 0, "no checkpoint");
    string text = text_of(folder("choices.jsonl"));
    text.replace(text.find("choices"), strlen("choices"), "hellaswag");
    std::ofstream(path) << text;
    const Ran ran = train_gpt(config, "--evaluate=" + path);
    for (const char* words : {"\nhellaswag ", "published, in %", "GPT-2 124M 28.92", "GPT-2 1558M 40.04"})
        EXPECT(ran.out.find(words) != string::npos, "'%s' is missing in '%s' '%s'", words, ran.out.c_str(),
               ran.err.c_str());
}

// Weights of any kind, on one rank, on ranks of threads and of processes: the answers of the checkpoint.
TEST(weights_of_any_format_have_the_same_scores) {
    json settings = task_config();
    settings["eval"]["tasks"] = json::array();
    const string config = tiny_program_config("formats", settings),
                 tasks = " --evaluate=" + folder("choices.jsonl"), exported = folder("exported");
    EXPECT(train_gpt(config).code == 0 && train_gpt(config, tasks).code == 0, "no checkpoint");
    const auto answers = [](const string& run) { return text_of(folder(run) + "/answers/choices.jsonl"); };
    const string expected = answers("formats");
    EXPECT(lines_in(folder("formats") + "/answers/choices.jsonl") == 12, "'%s'", expected.c_str());
    const string threads = " --parallel.ranks=2 --parallel.transport=threads";
    int runs = 0;
    const auto expect_equal = [&](const string& program, const string& args) {
        const string name = "formats_" + std::to_string(runs++);
        const Ran ran = test::run(program + config + " --run.dir=" + folder(name) + " " + args + tasks);
        EXPECT(ran.code == 0 && answers(name) == expected, "%s: '%s' '%s'", args.c_str(), ran.err.c_str(),
               answers(name).c_str());
    };
    for (const string& path : {"hf:" + exported, "llmc:" + exported + ".bin", "gguf:" + exported + ".gguf"}) {
        const Ran out = train_gpt(config, "--export=" + path);
        EXPECT(out.code == 0, "%s: '%s'", path.c_str(), out.err.c_str());
        expect_equal("./train_gpt ", "--model.init=" + path);
        expect_equal("./train_gpt ", "--model.init=" + path + threads);
    }
    if (can_start_processes())
        expect_equal("mpirun -q --allow-run-as-root --oversubscribe --bind-to none -np 2 ./train_gpt ",
                     "--model.init=hf:" + exported);
}

TEST(a_mesh_scores_as_one_rank_does) {
    json settings = task_config();
    settings["run"]["precision"] = "fp64", settings["eval"]["task_limit"] = 7;
    const string config = tiny_program_config("mesh", settings);
    const string mesh = "--parallel.transport=threads --parallel.ranks=4 --parallel.tp=2 --parallel.zero=1 ";
    const Ran one = train_gpt(config), four = train_gpt(config, mesh + "--run.dir=" + folder("four"));
    EXPECT(one.code == 0 && four.code == 0, "'%s' '%s'", one.err.c_str(), four.err.c_str());
    EXPECT(rows_of_tasks("mesh") == rows_of_tasks("four") && rows_of("mesh", "task")[0]["documents"] == 7,
           "'%s' '%s'", rows_of_tasks("mesh").c_str(), rows_of_tasks("four").c_str());
}

// Equal weights in FP32, where tp adds in another order: log probabilities differ, the counts do not.
TEST(ranks_that_share_a_document_count_the_same) {
    json settings = task_config();
    settings["eval"]["tasks"] = json::array();
    const string config = tiny_program_config("counts", settings);
    // contexts of a document differ, and its continuation is common
    vector<TaskDocument> pairs;
    for (size_t d = 0; d < 12; d++)
        pairs.push_back({.continuations = {" model reads", " model reads"}, .label = d % 2,
                         .contexts = {"the small" + string(d, '.'), "of a page" + string(d, '.')}});
    const string tasks = folder("choices.jsonl") + "," + folder("greedy.jsonl") + "," +
                         task_file("pairs", R"("accuracy": "sum", "accuracy_norm": "tokens")", pairs);
    EXPECT(train_gpt(config).code == 0, "no checkpoint");
    const string mesh = " --parallel.transport=threads --parallel.ranks=2 --parallel.tp=2";
    vector<string> rows, answers;
    for (const string& args : {string(), mesh}) {
        const Ran ran = train_gpt(config, "--evaluate=" + tasks + args);
        EXPECT(ran.code == 0, "'%s'", ran.err.c_str());
        rows.push_back(text_of(folder("counts") + "/evals.jsonl"));
        answers.push_back(text_of(folder("counts") + "/answers/pairs.jsonl"));
    }
    const string second = rows[1].substr(std::min(rows[0].size(), rows[1].size()));
    EXPECT(second == rows[0] && lines_in(folder("counts") + "/evals.jsonl") == 6, "'%s' '%s'",
           rows[0].c_str(), second.c_str());
    EXPECT(answers[0] != answers[1], "the mesh scores with the bits of one rank: is it one?");
    std::istringstream lines(answers[0]);
    int documents = 0;
    for (string line; std::getline(lines, line); documents++) {
        const json row = json::parse(line);
        EXPECT(row["tokens"][0] == row["tokens"][1] && row["logprob"][0] != row["logprob"][1], "%s",
               line.c_str());
    }
    EXPECT(documents == 12, "%d documents", documents);
}

TEST(training_goes_on_where_answers_cannot_be_written) {
    const string config = tiny_program_config("no_answers", task_config());
    std::filesystem::create_directories(folder("no_answers"));
    std::ofstream(folder("no_answers") + "/answers") << "a file in place of the folder";
    const Ran ran = train_gpt(config);
    EXPECT(ran.code == 0 && ran.err.find("cannot write answers of choices") != string::npos, "code %d, '%s'",
           ran.code, ran.err.c_str());
    EXPECT(steps_of("no_answers", "task").size() == 6, "%s", rows_of_tasks("no_answers").c_str());
}

// script(1) is a terminal: a line is drawn anew while documents are scored, and goes.
TEST(a_terminal_sees_progress) {
    if (run("script -qec true /dev/null").code != 0) return skip("no script(1)");
    const string config = tiny_program_config("progress", task_config());
    if (train_gpt(config).code != 0) return;
    const string longer = folder("much.jsonl");
    std::ofstream out(longer);
    out << R"({"task": "much", "accuracy": "sum"})" << "\n";
    for (int i = 0; i < 40000; i++)
        out << json{{"doc_id", i / 2}, {"idx", i % 2}, {"label", 0},
                    {"context", "the small model reads " + std::to_string(i / 2)},
                    {"continuation", i % 2 ? " zebra" : " page"}}.dump() << "\n";
    out.close();
    const Ran ran = run("script -qec './train_gpt " + config + " --evaluate=" + longer + "' /dev/null");
    EXPECT(ran.code == 0 && ran.out.find("much  ") != string::npos && ran.out.find("% ") != string::npos &&
           ran.out.find('\r') != string::npos, "'%s'", ran.out.c_str());
}

// Killed while a long task is scored: the scores of the task before are on the disk.
TEST(a_task_is_written_when_it_is_scored) {
    json settings = task_config();
    settings["eval"]["tasks"] = json::array();
    const string config = tiny_program_config("one_by_one", settings);
    EXPECT(train_gpt(config).code == 0, "no checkpoint");
    const string longer = folder("longer.jsonl"), rows = folder("one_by_one") + "/evals.jsonl";
    {
        std::ofstream out(longer);
        out << R"({"task": "longer", "accuracy": "sum"})" << "\n";
        for (int d = 0; d < 20000; d++)
            for (const char* word : {" the small", " zebra"})
                out << json{{"doc_id", d}, {"idx", word[1] == 'z' ? 1 : 0}, {"label", 0},
                            {"context", "the small model reads " + std::to_string(d)},
                            {"continuation", word}}.dump() << "\n";
    }
    const string tasks = folder("choices.jsonl") + "," + longer;
    const Ran ran = test::run("./train_gpt " + config + " --evaluate=" + tasks +
                              " & for i in $(seq 600); do [ -s " + rows + " ] && break; sleep 0.1; done; "
                              "kill -9 $! && echo was running; wait");
    EXPECT(ran.out.find("was running") != string::npos, "'%s' '%s'", ran.out.c_str(), ran.err.c_str());
    EXPECT(text_of(rows).find("\"choices\"") != string::npos && lines_in(rows) == 1, "'%s'",
           text_of(rows).c_str());
}

TEST(tasks_of_the_last_step_alone) {
    json settings = task_config();
    settings["eval"]["task_every"] = 0;
    const Ran ran = train_gpt(tiny_program_config("last", settings));
    EXPECT(ran.code == 0 && steps_of("last", "task") == vector<int>({20, 20}), "'%s'", ran.err.c_str());
}

TEST(mistakes_are_told_before_a_run_begins) {
    const string config = tiny_program_config("wrong", task_config());
    const std::pair<string, string> mistakes[] = {
        {"--evaluate=", "--evaluate names no task: write --evaluate=hellaswag,lambada or a file"},
        {"--evaluate=nosuch --plan",
         "expected one of --plan, --generate, --evaluate, --export, --report and --explore at a time"},
        {"--eval.tasks='[\"nosuch\"]'", "the task 'nosuch' is not there: no file data/evals/nosuch.jsonl"},
        {"--eval.tasks='[\"" + folder("greedy.jsonl") + "\",\"" + folder("greedy.jsonl") + "\"]'",
         "eval.tasks: two tasks are named 'greedy'"},
        {"--data.tokenizer='' --model.vocab=300",
         "eval.tasks needs a tokenizer; give --data.tokenizer=PATH"}};
    for (const auto& [args, told] : mistakes) {
        const Ran ran = train_gpt(config, args);
        EXPECT(ran.code == 78 && ran.err.find(told) != string::npos, "%s: code %d, '%s'", args.c_str(),
               ran.code, ran.err.c_str());
        EXPECT(no_message(ran.err).empty(), "%s", no_message(ran.err).c_str());
    }
}
