// The scripts around the program: plot, summary, the runner of tests.
#include <sys/stat.h>
#include <unistd.h>

#include "test/script_helpers.h"

TEST(scripts_take_the_python_that_is_named) {
    const std::string f = made("named"), python = f + "/python";
    write_program(python, "echo by $0 $@ >>" + f + "/calls; echo " + f + "/run");
    for (const auto& [script, call] : {std::pair{"dev/check.sh --root x", "dev/check.py --root x"},
                                       {"dev/bench.sh", "dev/bench.py"},
                                       {"dev/bench_ranks.sh", "dev/bench_ranks.py"},
                                       {"scripts/restart.sh true a.json", "-c import json"}}) {
        std::filesystem::remove(f + "/calls");
        const auto ran = test::run("PYTHON=" + python + " " + script);
        const std::string calls = read(f + "/calls");
        EXPECT(ran.code == 0 && has(calls, "by " + python + " " + call), "%s: %d '%s' %s", script, ran.code,
               calls.c_str(), ran.err.c_str());
    }
    const auto make = test::run("env -u MAKEFLAGS -u MAKELEVEL make -n quickstart check PYTHON=" + python);
    EXPECT(has(make.out, "PYTHON=" + python + " scripts/quickstart.sh") &&
           has(make.out, "PYTHON=" + python + " dev/check.sh"), "%s%s", make.out.c_str(), make.err.c_str());
}

// Without the packages that a program needs, and before it starts anything.
TEST(every_script_has_a_help) {
    size_t programs = 0;
    for (const char* where : {"dev", "scripts", "data"})
        for (const auto& file : std::filesystem::directory_iterator(where)) {
            const std::string path = file.path();
            const bool script = path.ends_with(".py") || path.ends_with(".sh");
            if (!script || access(path.c_str(), X_OK) != 0) continue;
            programs++;
            const auto ran = test::run("timeout 20 " + path + " --help");
            EXPECT(ran.code == 0 && ran.out.size() > 60 && ran.err.empty(), "%s: exit %d: %s%s", path.c_str(),
                   ran.code, ran.out.c_str(), ran.err.c_str());
        }
    EXPECT(programs > 35, "%zu programs", programs);
}

// ---------------------------------------------------------------------------------------------------------
// run_all.sh

TEST(run_all_counts) {
    const std::string f = made("binaries");
    write_program(f + "/good", "echo noise; echo '3 passed, 0 failed'");
    write_program(f + "/skips", "echo 'skip  a.b: no network'; echo '2 passed, 0 failed, 1 skipped'");
    write_program(f + "/bad", "echo 'x.cpp:3: not so'; echo '1 passed, 2 failed'; exit 1");
    write_program(f + "/crash", "echo 'half way'; kill -SEGV $$");
    write_program(f + "/silent", "echo 'no closing line'");
    write_program(f + "/liar", "echo '5 passed, 0 failed'; exit 3");
    auto ran = test::run("test/run_all.sh " + f + "/good " + f + "/skips");
    EXPECT(ran.code == 0 && last_line(ran.out) == "5 passed, 0 failed, 1 skipped", "%s", ran.out.c_str());
    EXPECT(has(ran.out, "no network") && !has(ran.out, "noise"), "%s", ran.out.c_str());
    ran = test::run("cd " + f + " && $OLDPWD/test/run_all.sh ./good ./bad ./crash ./silent ./liar");
    EXPECT(ran.code == 1 && last_line(ran.out) == "9 passed, 5 failed", "%s", ran.out.c_str());
    for (const char* shown : {"x.cpp:3: not so", "half way", "no closing line", "exit code 3"})
        EXPECT(has(ran.out, shown), "'%s' is not shown:\n%s", shown, ran.out.c_str());
    ran = test::run("test/run_all.sh");
    EXPECT(ran.code == 1, "no tests at all passes");
}

// The scripts append to a common file and overwrite no line.
TEST(run_all_shows_each_of_many) {
    const std::string f = made("many");
    const int tests = 40, lines = 20000;
    for (int i = 0; i < tests; i++)
        write_program(f + "/t" + std::to_string(i), "yes 'of a failed test' | head -n " +
                      std::to_string(lines) + "; echo '0 passed, 1 failed'");
    const auto ran = test::run("TEST_JOBS=16 test/run_all.sh " + f + "/t*");
    int shown = 0;
    for (size_t at = 0; (at = ran.out.find("of a failed test\n", at)) != std::string::npos; at++) shown++;
    EXPECT(shown == tests * lines, "%d lines are shown, of %d", shown, tests * lines);
    EXPECT(last_line(ran.out) == "0 passed, 40 failed", "%s", last_line(ran.out).c_str());
}

// ---------------------------------------------------------------------------------------------------------
// plot.py and summary.py

static std::string metrics(int steps) {
    std::string rows = "{\"event\":\"start\",\"params\":1}\n";
    for (int s = 0; s <= steps; s++) {
        const std::string at = "\"step\":" + std::to_string(s), loss = std::to_string(3 + 3.0 / (s + 1));
        if (s) rows += "{\"event\":\"train\"," + at + ",\"loss\":" + loss + ",\"norm\":1,\"tokens\":" +
                       std::to_string(s * 8) + "}\n";
        if (s % 5 == 0)
            rows += "{\"event\":\"val\"," + at + ",\"loss\":" + loss + ",\"bits_per_byte\":1.5}\n";
    }
    rows += "{\"event\":\"sample\",\"step\":5,\"text\":\"The lighthouse\\nwas dark.\"}\n";
    return rows + "{\"event\":\"tra";      // a row half written
}

TEST(plot_draws_a_png) {
    const std::string f = made("plot");
    write(f + "/a/metrics.jsonl", metrics(10));
    write(f + "/b/metrics.jsonl", metrics(20));
    const std::string plot = python() + " scripts/plot.py ";
    expect_error(test::run(plot + f + "/none"), {"plot/none", "metrics.jsonl"});
    write(f + "/c/metrics.jsonl", "{\"event\":\"train\"\n");
    expect_error(test::run(plot + f + "/c"), {"metrics.jsonl:1"});
    write(f + "/bytes/metrics.jsonl", "\xff\xfe\n");
    expect_error(test::run(plot + f + "/bytes"), {"bytes/metrics.jsonl:1"});
    for (const char* row : {"[1, 2]", "{\"event\":\"val\",\"loss\":3}", "{\"loss\":3}",
                            "{\"event\":\"sample\",\"step\":3}"}) {
        write(f + "/other/metrics.jsonl", row + std::string("\n"));
        expect_error(test::run(plot + f + "/other"), {"other/metrics.jsonl:1", row});
    }
    expect_error(test::run(plot + f + "/a --also bogus"), {"bogus", "tokens_per_s"});
    std::filesystem::create_directories(f + "/unreadable/metrics.jsonl");
    expect_error(test::run(plot + f + "/unreadable"), {"unreadable/metrics.jsonl", "directory"});
    write(f + "/without/matplotlib.py", "raise ImportError\n");
    expect_error(test::run("PYTHONPATH=" + f + "/without " + plot + f + "/a"), {"python3-matplotlib"});
    if (test::run(python() + " -c 'import matplotlib'").code != 0) return test::skip("no matplotlib");
    expect_error(test::run(plot + f + "/a --out " + f + "/a.jpgx"), {"a.jpgx"});
    for (const auto& runs : {f + "/a", f + "/a " + f + "/b/metrics.jsonl --x tokens --also norm,lr --log"}) {
        const std::string png = f + "/out.png";
        std::filesystem::remove(png);
        const auto ran = test::run(plot + runs + " --out " + png);
        std::string head(4, 0);
        std::ifstream(png, std::ios::binary).read(head.data(), 4);
        EXPECT(ran.code == 0 && head == "\x89PNG", "%s: %s", runs.c_str(), ran.err.c_str());
        EXPECT(std::filesystem::file_size(png) > 10000, "%s: an empty picture", runs.c_str());
    }
}

TEST(the_picture_has_the_name_that_is_printed) {
    if (test::run(python() + " -c 'import matplotlib'").code != 0) return test::skip("no matplotlib");
    const std::string f = made("picture");
    write(f + "/metrics.jsonl", metrics(10));
    std::filesystem::create_directories(f + "/pictures");
    write(f + "/mine", "mine");
    std::filesystem::create_symlink("mine", f + "/drawn.svg");
    for (const auto& [out, name] : {std::pair{"/plain", "/plain.png"}, {"/pictures", "/pictures/curve.png"},
                                    {"/drawn.svg", "/drawn.svg"}}) {
        const auto ran = test::run(python() + " scripts/plot.py " + f + " --out " + f + out);
        EXPECT(ran.code == 0 && ran.out == f + name + "\n" && std::filesystem::exists(f + name),
               "%s: '%s' %s", out, ran.out.c_str(), ran.err.c_str());
    }
    EXPECT(read(f + "/mine") == "mine", "written through a link");
    std::filesystem::create_directories(f + "/step_2");
    write(f + "/step_2/manifest.json", "{}"), write(f + "/thesis.pdf", "%PDF-1.4 mine");
    EXPECT(mkfifo((f + "/pipe.png").c_str(), 0600) == 0);
    for (const char* out : {"/step_2/new.png", "/thesis.pdf", "/pipe.png"})
        expect_error(test::run("timeout 20 " + python() + " scripts/plot.py " + f + " --out " + f + out),
                     {out});
    EXPECT(read(f + "/thesis.pdf") == "%PDF-1.4 mine");
    const auto full = test::run(python() + " scripts/plot.py " + f + " >/dev/full");
    expect_error(full, {"error: standard output: No space left on device\n"});
}

TEST(summary_prints_losses_and_text) {
    const std::string f = made("summary");
    expect_error(test::run(python() + " scripts/summary.py " + f + "/none"), {"none/metrics.jsonl"});
    write(f + "/bad/metrics.jsonl", "{\"event\":\"val\",\"loss\":3}\n");
    expect_error(test::run(python() + " scripts/summary.py " + f + "/bad"), {"metrics.jsonl:1"});
    // a loss that is not finite is null
    write(f + "/metrics.jsonl", "{\"event\":\"val\",\"step\":7,\"loss\":null}\n" + metrics(10));
    expect_error(test::run(python() + " scripts/summary.py " + f + " >/dev/full"),
                 {"error: standard output: No space left on device\n"});
    const auto ran = test::run(python() + " scripts/summary.py " + f);
    for (const char* part : {"      7                 -               -", "after step 5", "    was dark.",
                             "     10            3.2727           1.500"})
        EXPECT(has(ran.out, part), "no '%s' in:\n%s%s", part, ran.out.c_str(), ran.err.c_str());
}
