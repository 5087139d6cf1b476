// The page of --watch and of reports, in headless Chromium: dev/page_checks.py and dev/page_panels.py look, a
// stand-in for the server (dev/fake_watch.py) speaks. And scripts/report.py, which writes the page with a run
// inside.
#include <cmath>

#include "test/script_helpers.h"
#include "test/served_program.h"
#include "test/watched_folder.h"

static void expect_checks(const std::string& part) { expect_page_checks("dev/page_checks.py " + part); }

TEST(page_shows_runs_that_come_grow_and_go) { expect_checks("live"); }
TEST(page_has_axes_zoom_cursor_and_keyboard) { expect_checks("views"); }
TEST(page_draws_many_runs) { expect_checks("many"); }
TEST(page_draws_what_the_program_serves) {
    if (test::no_server()) return;
    const std::string root = folder("served"), file = root + "/a/metrics.jsonl";
    test::write_text(file, test::start_row() + test::train_rows(1, 50));
    const test::Program p("served.log", "--watch=" + root + " --port=0");
    EXPECT(p.says("Ctrl-C"), "%s", test::text_of(p.log).c_str());
    const int port = test::port_of(test::text_of(p.log));
    expect_page_checks(fmt::format("dev/page_panels.py http://127.0.0.1:{}/ {}", port, file));
}
TEST(page_has_no_address_outside) { expect_no_address_outside(std::string(watch_page())); }
TEST(page_has_scores_health_marks_and_ranks) { expect_page_checks("dev/page_panels.py"); }

// ---------------------------------------------------------------------------------------------------------
// scripts/report.py

static const std::string kHostile = "<img src=x onerror=window.hit=1>";
static const std::string kText = "</script><script>window.hit=2</script><!-- " + kHostile;

static std::string quoted(const std::string& name) { return "'" + name + "'"; }

// A run of this many steps. One loss is far below the others; texts and the name look like HTML.
static void write_run(const std::string& dir, int steps) {
    const std::string levels(900, '['), deep = "{\"event\":\"train\",\"step\":6,\"x\":" + levels +
                                                std::string(900, ']') + "}\n" + levels + levels + "\n";
    std::string rows = "{\"event\":\"start\",\"params\":3342336,\"world\":1,\"plan_bytes\":1000000}\n";
    for (int s = 1; s <= steps; s++) {
        const std::string at = "\"step\":" + std::to_string(s);
        const double loss = s == 3456 ? -1.5 : 3 + 3 / std::sqrt(double(s));
        rows += "{\"event\":\"train\"," + at + ",\"loss\":" + std::to_string(loss) +
                ",\"norm\":1.5,\"lr\":0.001,\"tokens\":" + std::to_string(1024 * s) + ",\"ms\":40.5}\n";
        if (s % 10 == 0) rows += "{\"event\":\"val\"," + at + ",\"loss\":" + std::to_string(loss) + "}\n";
        if (s == 5) rows += "{\"event\":\"train\",\"step\":5,\"lo\n!\n[1]\n{\"event\":\"val\"}\n" + deep;
    }
    rows += "{\"event\":\"sample\",\"step\":10,\"text\":\"" + kText + "\"}\n";
    write(dir + "/metrics.jsonl", rows + "{\"event\":\"tra");
    write(dir + "/config.json", "{\"about\": \"" + kHostile + "\", \"train\": {\"steps\": 9000}}");
}

TEST(report_is_one_file_that_shows_the_run) {
    const std::string f = folder("reports");
    for (const auto& [name, steps] : {std::pair{kHostile, 40}, {std::string("long"), 9000}}) {
        const std::string dir = f + "/" + name, report = python() + " -I scripts/report.py " + quoted(dir);
        write_run(dir, steps);
        const auto ran = test::run(report);
        EXPECT(ran.code == 0 && has(ran.out, "6 damaged lines"), "%s%s", ran.out.c_str(), ran.err.c_str());
        const std::string page = read(dir + "/report.html");
        EXPECT(has(page, "id=\"data\">[{"), "no data in the page");
        EXPECT(!has(page, kText) && has(page, "\\u003cimg src=x"), "a text stands in the page as HTML");
        EXPECT(!has(page, "/* join"), "a part of the page is missing");
        EXPECT(page.size() < 900'000, "%zu bytes", page.size());
        expect_checks("report " + quoted(dir) + " " + quoted(kText));
    }
}

// The Makefile's awk program and the script join the parts of the page to the same bytes.
TEST(report_has_the_page_of_the_server) {
    const std::string f = folder("joined"), out = f + "/out.html";
    write_run(f, 12);
    const auto ran = test::run(python() + " scripts/report.py " + f + " --out=" + out);
    EXPECT(ran.code == 0 && has(ran.out, out), "%s%s", ran.out.c_str(), ran.err.c_str());
    const std::string page = test::run("awk -f dev/make/join.awk llmc/train/watch/page.html").out;
    const std::string data = "<script type=\"application/json\" id=\"data\">";
    const std::string report = read(out), tail = page.substr(page.find(data) + data.size() + 4);
    EXPECT(page.find(data + "null</script>") != page.npos, "the page has no place for data");
    EXPECT(report.starts_with(page.substr(0, page.find(data))) && report.ends_with(tail), "other bytes");
}

// Pages of both programs: equal bytes around the data, in the data equal values in equal order. Ages depend
// on when a program looks. Prints what the run is.
static test::Ran compare_pages(const std::string& f, const std::string& run) {
    write(f + "/config.json", "{\"run\": {\"dir\": \"" + run + "\"}}");
    write(f + "/compare.py", R"py(
import json, re
around, data = [], []
for name in ("a.html", "b.html"):
    with open(name, encoding="utf-8") as f:
        before, text, after = re.fullmatch('(.*id="data">)(.*?)(</script>.*)', f.read(), re.S).groups()
    around.append(before + after)
    ageless = re.sub('"(age|seconds)":[0-9.]+', r'"\1":0', text)
    data.append(json.loads(ageless, object_pairs_hook=list)[0])
assert around[0] == around[1], "other bytes around the data"
for ours, theirs in zip(*data):
    assert ours == theirs, f"{ours[0]}\n{str(ours)[:1000]}\n{theirs[0]}\n{str(theirs)[:1000]}"
assert len(data[0]) == len(data[1]), [[member[0] for member in run] for run in data]
run = json.loads(text)[0]
assert all(mark["step"] is not None for mark in run["marks"]), run["marks"]
sizes = [len(run[key].get("step", ())) for key in ("train", "comm", "val")]
memory = run["memory"]
print(run["state"], *sizes, len(run["marks"]), memory["plan_bytes"][0], memory["peak_bytes"][-1])
)py");
    return test::run("./train_gpt " + f + "/config.json --report=" + f + "/a.html >/dev/null && " + python() +
                     " scripts/report.py " + run + " --out=" + f + "/b.html >/dev/null && cd " + f + " && " +
                     python() + " compare.py");
}

// Rows of every kind, more of training and communication than are drawn.
static std::string many_rows() {
    std::string rows = test::start_row();
    for (int step = 1; step <= 9000; step++) {
        rows += test::train_row(step, step % 7 ? "" : R"(,"joules":1e5,"exact":true,"list":[1])");
        rows += fmt::format(R"({{"event":"comm","step":{},"wait_ms":{},"axis":{{"dp":{{"bytes":2.5}}}}}})",
                            step, step * 7919 % 1000 / 8.) + "\n";
        if (step % 10 == 0) rows += test::val_row(step);
        if (step % 1000) continue;
        const char* more[] = {R"("task","step":{},"task":"piqa","accuracy":0.5)",
                              R"("task","step":{},"task":"<arc>","accuracy":0.25,"documents":9)",
                              R"("sample","step":{},"text":"</script> \u0001 é")",
                              R"("health","step":{},"tensors":[[1,2.5e-9,null]])",
                              R"("memory","step":{},"peak_bytes":700)",
                              R"("spike","step":{},"of":"loss","value":1234567,"z":7)"};
        for (const char* row : more)
            rows += "{\"event\":" + fmt::format(fmt::runtime(row), step) + "}\n";
    }
    return rows;
}

TEST(report_is_the_page_of_the_program) {
    const std::string f = folder("same"), run = f + "/run";
    const std::string odd = "{\"event\":\"val\"}\n{\"event\":\"train\",\"step\":1e999}\n[1]\n\xff\n"
                            "{\"step\":3}\n"
                            "{\"event\":\"train\",\"step\":9001,\"loss\":NaN}\n"
                            "{\"event\":\"resume\",\"step\":9000}\n"
                            "{\"event\":\"train\",\"step\":9001,\"loss\":null,\"ms\":12,\"skipped\":true}\n"
                            "{ \"event\": \"train\", \"step\": 9002, \"loss\": 2, \"ms\": 12.5 }\n";
    write(run + "/metrics.jsonl", many_rows() + odd + "{\"event\":\"train\",\"st");
    write(run + "/evals.jsonl", "{\"step\":5,\"task\":\"sciq\",\"accuracy\":0.5}\n{\"step\":5}\nx\n");
    write(run + "/checkpoints.jsonl", "{\"step\":8000,\"dir\":\"runs/x/step_8000\"}\n");
    write(run + "/config.json", "{\"about\": \"" + kHostile + "\", \"train\": {\"lr\": 1e-4}}");
    write(run + "/ranks/0.json", R"({"event":"rank","rank":0,"host":"n","dp":0,"pp":0,"tp":0,)"
                                 R"("doing":"train","step":9002,"collective":"","seconds":4})" "\n");
    const auto ran = compare_pages(f, run);
    std::istringstream said(ran.out);
    std::string state;
    int train = 0, comm = 0, val = 0, marks = 0;
    said >> state >> train >> comm >> val >> marks;
    EXPECT(ran.code == 0 && state == "training" && train > 1000 && train <= 2001 && comm > 1000 &&
           comm <= 2001 && val == 900 && marks == 12, "%s%s", ran.out.c_str(), ran.err.c_str());
}

// State, marks and memory, whatever the last row is and whether a process holds the lock.
TEST(report_says_what_the_program_says) {
    const std::string f = folder("both"), run = f + "/run";
    const std::string rows =
        "{\"event\":\"start\",\"params\":10,\"world\":1,\"plan_bytes\":1000}\n"
        "{\"event\":\"train\",\"step\":1,\"loss\":3.5,\"norm\":1,\"ms\":40}\n"
        "{\"event\":\"spike\",\"step\":1,\"of\":\"norm\",\"value\":14.25,\"z\":8.06,\"first\":\"wte\","
        "\"first_z\":9,\"first_step\":1}\n"
        "{\"event\":\"spike\",\"step\":2,\"of\":\"loss\",\"value\":1234567,\"z\":7}\n"
        "{\"event\":\"train\",\"step\":2,\"loss\":null,\"norm\":null,\"ms\":40,\"skipped\":true}\n"
        "{\"event\":\"memory\",\"step\":2,\"peak_bytes\":700}\n{\"event\":\"resume\",\"step\":2}\n";
    write(run + "/checkpoints.jsonl", "{\"step\":2,\"dir\":\"runs/x/step_2\"}\n");
    for (const std::string end : {"", "{\"event\":\"done\",\"step\":2,\"peak_bytes\":900}\n"}) {
        for (const bool lock : {false, true}) {
            write(run + "/metrics.jsonl", rows + end);
            if (lock) write(run + "/train_gpt.lock", "process 1 on x\n");
            else std::filesystem::remove(run + "/train_gpt.lock");
            const auto ran = compare_pages(f, run);
            const std::string state = !end.empty() ? "done" : lock ? "stopped" : "training";
            const std::string want = state + " 2 0 0 5 1000 " + (end.empty() ? "700\n" : "900\n");
            EXPECT(ran.code == 0 && ran.out == want, "%s%s", ran.out.c_str(), ran.err.c_str());
        }
    }
}

TEST(report_errors_are_one_line) {
    const std::string f = folder("report_errors"), report = python() + " scripts/report.py ";
    expect_error(test::run(report + f + "/none"), {"error: ", "none/metrics.jsonl: No such file"});
    write(f + "/empty/metrics.jsonl", "{\"event\":\"start\"}\nxx\n");
    expect_error(test::run(report + f + "/empty"), {"error: ", "no training or validation rows"});
    write_run(f + "/a", 12);
    expect_error(test::run(report + f + "/a --out=" + f + "/nowhere/x.html"), {"error: ", "nowhere/x.html"});
    expect_error(test::run(report + f + "/a --out=" + f), {"error: ", "Is a directory"});
    expect_error(test::run(report + f + "/a --out=/dev/full"), {"error: /dev/full: No space left on device"});
    const auto missing = test::run("awk -f dev/make/join.awk " + f + "/page.html");
    EXPECT(missing.code != 0, "a page that is not there joins");
    write(f + "/page.html", "<p>\n/* join nowhere.css */\n");
    const auto part = test::run("awk -f dev/make/join.awk " + f + "/page.html");
    EXPECT(part.code == 1 && has(part.err, "page.html:2: no file") && has(part.err, "nowhere.css"), "%s",
           part.err.c_str());
}
