// The page of --watch and of reports, in headless Chromium: dev/page_checks.py and dev/page_panels.py look, a
// stand-in for the server (dev/fake_watch.py) speaks. And reports: the page with runs inside.
#include <cmath>

#include "llmc/train/report/embedded.h"
#include "test/script_helpers.h"
#include "test/served_program.h"
#include "test/watched_folder.h"

static void expect_checks(const std::string& part) { expect_page_checks("dev/page_checks.py " + part); }

TEST(page_shows_runs_that_come_grow_and_go) { expect_checks("live"); }
TEST(page_has_axes_zoom_cursor_and_keyboard) { expect_checks("views"); }
TEST(page_draws_many_runs) { expect_checks("many"); }
TEST(page_compares_runs_and_prints) { expect_page_checks("dev/page_around.py"); }
TEST(page_draws_rows_that_no_trainer_writes) {
    expect_page_checks("dev/page_hostile.py " + made("hostile"));
}
TEST(page_draws_what_the_program_serves) {
    const std::string root = made("served"), file = root + "/a/metrics.jsonl";
    test::write_text(file, test::start_row() + test::train_rows(1, 50));
    const test::Program p("served.log", "--watch=" + root + " --port=0");
    EXPECT(p.says("Ctrl-C"), "%s", test::text_of(p.log).c_str());
    const int port = test::port_of(test::text_of(p.log));
    expect_page_checks(fmt::format("dev/page_panels.py http://127.0.0.1:{}/ {}", port, file));
}
TEST(page_has_no_address_outside) { expect_no_address_outside(std::string(watch_page())); }
TEST(page_has_scores_health_marks_and_ranks) { expect_page_checks("dev/page_panels.py"); }

// ---------------------------------------------------------------------------------------------------------
// ./train_gpt RUN... --report

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
    const std::string f = made("reports");
    for (const auto& [name, steps] : {std::pair{kHostile, 40}, {std::string("long"), 9000}}) {
        const std::string dir = f + "/" + name, report = "./train_gpt " + quoted(dir) + " --report";
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

// The page around the data is the page that is served.
TEST(report_has_the_page_of_the_server) {
    const std::string f = made("joined"), out = f + "/out.html";
    write_run(f, 12);
    const auto ran = test::run("./train_gpt " + f + " --report=" + out);
    EXPECT(ran.code == 0 && has(ran.out, out), "%s%s", ran.out.c_str(), ran.err.c_str());
    const std::string page = test::run("awk -f dev/make/join.awk llmc/train/watch/page.html").out;
    const std::string data = "<script type=\"application/json\" id=\"data\">";
    const std::string report = read(out), tail = page.substr(page.find(data) + data.size() + 4);
    EXPECT(page.find(data + "null</script>") != page.npos, "the page has no place for data");
    EXPECT(report.starts_with(page.substr(0, page.find(data))) && report.ends_with(tail), "other bytes");
}

static nlohmann::json data_of(const std::string& page) {
    const std::string begin = "id=\"data\">";
    const size_t at = page.find(begin) + begin.size();
    return nlohmann::json::parse(page.substr(at, page.find('<', at) - at));
}

// Two runs on a page, of equal names; the second has validations alone.
TEST(report_has_several_runs) {
    const std::string f = made("several"), out = f + "/out.html";
    write_run(f + "/a/run", 12);
    write(f + "/b/run/metrics.jsonl", test::val_row(10) + test::val_row(20) + "{\"event\":\"val\"}\n");
    const auto ran = test::run("./train_gpt " + f + "/a/run " + f + "/b/run/ --report=" + out);
    EXPECT(ran.code == 0 && has(ran.out, "7 damaged lines"), "%s%s", ran.out.c_str(), ran.err.c_str());
    const auto data = data_of(read(out));
    EXPECT(data.size() == 2 && data[0]["run"] == "run" && data[1]["run"] == f + "/b/run", "%s",
           data.dump().substr(0, 300).c_str());
    EXPECT(data[0]["train"]["step"].size() == 12 && data[1]["val"]["step"].size() == 2, "rows");
    EXPECT(!std::filesystem::exists(f + "/a/run/report.html"), "a second file");
}

TEST(report_errors_are_one_line) {
    const std::string f = made("report_errors");
    write(f + "/empty/metrics.jsonl", "{\"event\":\"start\"}\nxx\n");
    std::filesystem::create_directories(f + "/nothing");
    write_run(f + "/a", 12);
    const std::pair<std::string, std::string> mistakes[] = {
        {"/none --report", "none: cannot be opened: No such file"},
        {"/nothing --report", "nothing' has no metrics.jsonl"},
        {"/empty --report", "no training or validation rows"},
        {"/a --report=" + f + "/nowhere/x.html", "nowhere/x.html"},
        {"/a --report=" + f, "is a device, a pipe or a folder"},
        {"/a " + f + "/../report_errors/a " + f + "/a --report", "a is named twice"},
        {"/a --report=/dev/full", "is a device, a pipe or a folder"}};
    for (const auto& [args, words] : mistakes) {
        const auto ran = test::run("./train_gpt " + f + args);
        EXPECT(ran.code == 78 && has(ran.err, words), "%s: exit %d: %s",
               args.c_str(), ran.code, ran.err.c_str());
    }
    const auto missing = test::run("awk -f dev/make/join.awk " + f + "/page.html");
    EXPECT(missing.code != 0, "a page that is not there joins");
    write(f + "/page.html", "<p>\n/* join nowhere.css */\n");
    const auto part = test::run("awk -f dev/make/join.awk " + f + "/page.html");
    EXPECT(part.code == 1 && has(part.err, "page.html:2: no file") && has(part.err, "nowhere.css"), "%s",
           part.err.c_str());
}
