// scripts/wandb.py with a package wandb of the test's own, and scripts/grafana.json.
#include "llmc/train/report/prometheus.h"
#include "test/program.h"

using std::string;
using std::vector;
using namespace test;

static string python() {
    const char* p = getenv("PYTHON");
    return p && *p ? p : "/usr/bin/python3";
}

// A package that writes each call to calls.txt.
static string fake_wandb() {
    const string at = folder("packages");
    run("mkdir -p " + at + "/wandb");
    std::ofstream(at + "/wandb/__init__.py") << R"(
import json
calls = open(")" << folder("calls.txt") << R"(", "a")
def say(*what):
    print(json.dumps(what), file=calls, flush=True)
class Html(str):
    pass
class Run:
    def log(self, values, step):
        say("log", step, values)
    def finish(self):
        say("finish")
def init(project, entity, config, name):
    say("init", project, entity, config.get("about"), name)
    return Run()
)";
    return "PYTHONPATH=" + at + " " + python() + " scripts/wandb.py ";
}

static void write_run(const string& rows) {
    run("mkdir -p " + folder("a_run"));
    std::ofstream(folder("a_run") + "/metrics.jsonl") << rows;
    std::ofstream(folder("a_run") + "/config.json") << R"({"about": "a test"})";
}
static const char* const kRows =
    "{\"event\":\"start\",\"params\":7}\n"
    "{\"event\":\"val\",\"step\":0,\"loss\":5.5}\n"
    "{\"event\":\"train\",\"step\":1,\"loss\":5,\"norm\":null,\"skipped\":true}\n"
    "{\"event\":\"task\",\"step\":1,\"task\":\"piqa\",\"documents\":8,\"accuracy\":0.5,"
    "\"chance\":0.25,\"accuracy_norm\":0.75}\n"
    "{\"event\":\"memory\",\"step\":1,\"peak_bytes\":7000}\n"
    "{\"event\":\"comm\",\"step\":1,\"bytes\":64,\"wait_ms\":0.5}\n"
    "{\"event\":\"sample\",\"step\":1,\"text\":\"<b> & so\"}\n";

TEST(rows_become_calls) {
    write_run(string(kRows) + "{\"event\":\"train\",\"st");         // still being written
    const Ran ran = run(fake_wandb() + folder("a_run/") + " --once --project=p");
    EXPECT(ran.code == 0 && ran.err.empty(), "code %d, '%s'", ran.code, ran.err.c_str());
    const string calls = text_of(folder("calls.txt"));
    EXPECT(calls == "[\"init\", \"p\", null, \"a test\", \"a_run\"]\n"
                    "[\"log\", 0, {\"val/loss\": 5.5}]\n"
                    "[\"log\", 1, {\"train/loss\": 5}]\n"
                    "[\"log\", 1, {\"tasks/piqa\": 0.5, \"tasks/piqa_norm\": 0.75}]\n"
                    "[\"log\", 1, {\"memory\": 7000}]\n"
                    "[\"log\", 1, {\"comm/bytes\": 64, \"comm/wait_ms\": 0.5}]\n"
                    "[\"log\", 1, {\"sample/text\": \"<pre>&lt;b&gt; &amp; so</pre>\"}]\n"
                    "[\"finish\"]\n", "%s", calls.c_str());
}

// The file grows, is cut by a resumed run, and grows again: each step once, until the run is done.
TEST(a_run_is_followed) {
    write_run(kRows);
    std::ofstream(folder("calls.txt"));
    const string path = folder("a_run") + "/metrics.jsonl";
    const string two = R"({"event":"train","step":2,"loss":4}\n)", cut = path + ".cut";
    const string end = R"({"event":"train","step":3,"loss":3}\n{"event":"done","step":3}\n)";
    const string later = fmt::format("sleep 3; printf '{0}' >> {1}; sleep 3; head -n 4 {1} > {2}; "
                                     "cp {2} {1}; sleep 3; printf '{0}{3}' >> {1}", two, path, cut, end);
    const Ran ran = run("(" + later + ") & timeout 60 env " + fake_wandb() + folder("a_run"));
    EXPECT(ran.code == 0 && ran.err.empty(), "code %d, '%s'", ran.code, ran.err.c_str());
    const string calls = text_of(folder("calls.txt"));
    for (const char* once : {"[\"log\", 2, {\"train/loss\": 4}]", "[\"log\", 3, {\"train/loss\": 3}]",
                             "[\"log\", 1, {\"train/loss\": 5}]", "[\"finish\"]"}) {
        const size_t at = calls.find(once);
        EXPECT(at != string::npos && calls.find(once, at + 1) == string::npos, "%s in '%s'", once,
               calls.c_str());
    }
}

// Between two looks the file is cut and grows past its earlier length; a row without a step is left out.
TEST(a_file_that_was_cut_and_grew_is_read_anew) {
    write_run(kRows);
    std::ofstream(folder("calls.txt"));
    const string path = folder("a_run") + "/metrics.jsonl", longer = path + ".longer";
    {
        std::ofstream f(longer);
        f << R"({"event":"start","params":1})" << "\n" << R"({"event":"train","loss":9})" << "\n";
        for (int step = 1; step <= 60; step++)
            f << fmt::format(R"({{"event":"train","step":{},"loss":{}}})", step, 100 + step) << "\n";
        f << R"({"event":"done","step":60})" << "\n";
    }
    const string later = fmt::format("sleep 3; cp {} {}", longer, path);
    const Ran ran = run("(" + later + ") & timeout 60 env " + fake_wandb() + folder("a_run"));
    EXPECT(ran.code == 0 && ran.err.empty(), "code %d, '%s'", ran.code, ran.err.c_str());
    const string calls = text_of(folder("calls.txt"));
    for (const int step : {3, 60})
        EXPECT(calls.find(fmt::format("[\"log\", {}, {{\"train/loss\": {}}}]", step, 100 + step)) !=
               string::npos, "step %d in '%s'", step, calls.c_str());
}

TEST(mistakes_of_a_caller_are_one_line) {
    const Ran none = run(fake_wandb() + folder("none") + " --once");
    const string told = "metrics.jsonl is not there: name the folder of a run";
    EXPECT(none.code == 1 && none.err.find(told) != string::npos &&
           std::count(none.err.begin(), none.err.end(), '\n') == 1, "code %d, '%s'", none.code,
           none.err.c_str());
    write_run(kRows);
    const Ran ran = run(python() + " -I scripts/wandb.py " + folder("a_run") + " --once");
    const string missing = "the Python package wandb is missing: pip install wandb";
    EXPECT(ran.code == 0 || ran.err.find(missing) != string::npos, "code %d, '%s'", ran.code,
           ran.err.c_str());
}

TEST(the_dashboard_asks_for_metrics_that_exist) {
    const json dashboard = json::parse(text_of("scripts/grafana.json"));
    int panels = 0;
    for (const json& panel : dashboard["panels"])
        for (const json& target : panel["targets"]) {
            const string query = target["expr"], name = query.substr(0, query.find('{'));
            bool known = false;
            for (const Figure& f : all_figures()) known |= f.prometheus.name == name;
            EXPECT(known, "%s", name.c_str());
            panels++;
        }
    EXPECT(panels == 8, "%d panels", panels);
}
