// The scripts around the program: plot, check, the runner of tests.
#include <sys/stat.h>
#include <unistd.h>

#include "test/script_helpers.h"

// ---------------------------------------------------------------------------------------------------------
// dev/check.py: a violation of each rule is planted, and found in its line; the clean tree passes

struct Planted { const char *path, *content, *finds; };

static std::vector<Planted> planted() {
    static const std::string long_line = "// " + std::string(108, 'x') + "\n", function =
        "namespace a {\nstruct S {\n    int f(int x) {\n" + std::string("        x++;\n") ;
    static const std::string long_rule = "# " + std::string(119, 'x') + "\n";
    static std::string long_function = function, long_file, kernel = "void k() {\n", long_main;
    if (long_file.empty()) {
        for (int i = 0; i < 60; i++) long_function += "        if (x) { x++; }\n";
        long_function += "    }\n};\n}\n";
        for (int i = 0; i < 301; i++) long_file += "int a;\n";
        for (int i = 0; i < 119; i++) kernel += "    // }}} \"{\n";
        kernel += "}\n";
        for (int i = 0; i < 121; i++) long_main += "\n";
    }
    return {
        {"llmc/io/a.h", "#include \"llmc/model/dims.h\"\n", "llmc/io/a.h:1: floors"},
        {"llmc/model/b.h", "int a;\n#include \"llmc/train/step/zero.h\"\n", "llmc/model/b.h:2: floors"},
        {"llmc/model/c.h", "int a;  // all of dp\n", "llmc/model/c.h:1: floors: model/ must not know of 'dp"},
        {"llmc/model/d.h", "void f(int zero);\n", "llmc/model/d.h:1: floors: model/ must not know of 'ze"},
        {"llmc/train/e.h", "#include \"train_gpt.cu\"\n", "llmc/train/e.h:1: floors: nothing in llmc/"},
        {"llmc/io/f.cpp", long_file.c_str(), "llmc/io/f.cpp:301: file length: 301 lines"},
        {"llmc/io/g.cpp", long_line.c_str(), "llmc/io/g.cpp:1: columns: 111"},
        {"llmc/io/h.cpp", long_function.c_str(), "llmc/io/h.cpp:3: function length: f has 63 lines"},
        {"llmc/ops/cpu/i.cpp", kernel.c_str(), "llmc/ops/cpu/i.cpp:1: function length: k has 121 lines"},
        {"llmc/io/j.cpp", "int a;\n\tint b;\n", "llmc/io/j.cpp:2: blanks: a tab"},
        {"llmc/io/k.cpp", "int a; \n", "llmc/io/k.cpp:1: blanks: blanks at the end"},
        {"llmc/ops/cuda/l.cu", "void f() { g<<<1, 2>>>(); }\n", "llmc/ops/cuda/l.cu:1: launch"},
        {"llmc/train/t.cpp", "#include <nlohmann/json.hpp>\n", "llmc/train/t.cpp:1: include"},
        {"llmc/ops/cuda/s.cu", "// FLOOR bytes = 4\n__global__ void a() {}\n\n// b\n__global__ void b() {}\n",
         "llmc/ops/cuda/s.cu:5: floor"},
        {"Makefile", "X = -ffast-math\n", "Makefile:1: fast math"},
        {"dev/make/v.mk", long_rule.c_str(), "dev/make/v.mk:1: columns: 121"},
        {"llmc/comm/q.h", "template <class T> struct Both { T a; };\n", ""},
        {"llmc/io/r.cpp", "struct One {};\nstruct Both {\n};\n", "llmc/io/r.cpp:2: one definition: Both"},
        {"llmc/io/m.cpp", "// TODO: more\n", "llmc/io/m.cpp:1: unfinished"},
        {"train_gpt.cu", long_main.c_str(), "train_gpt.cu:121: file length: 121 lines"},
        {"dev/n.py", "import os\ndef f(:\n", "dev/n.py:2: python"},
        {"scripts/o.sh", "#!/bin/bash\nif true; then\n", "scripts/o.sh"},
        {"scripts/w.sh", "#!/bin/bash\n", "scripts/w.sh:1: mode: "},
        {"data/x.py", "#!/usr/bin/env python3\n", "data/x.py:1: interpreter"},
        {"scripts/y.py", "import os\n", "scripts/y.py:1: interpreter"},
        {"llmc/README.md", "`a`: not `bare_name`\n", "llmc/README.md:1: tour: llmc/ops/cpu/bare.h"},
        {"dev/faults.json", "[{\"rule\": 1, \"file\": \"d\", \"from\": \"\"}]", "dev/faults.json:1: faults"},
        {"scripts/p.json", "{\"a\": 1,}\n", "scripts/p.json:1: json"},
        {"z.d", "a.o: b.h\n", "z.d:1: build output"},
    };
}

static constexpr Planted kPlantedHeaders[] = {
    {"llmc/comm/ring.h", "int a;\n#include \"llmc/comm/ring_step.h\"\n",
     "llmc/comm/ring.h:2: circles: llmc/comm/ring.h:2 includes llmc/comm/ring_step.h, "
     "llmc/comm/ring_step.cpp:1 includes llmc/comm/ring.h"},
    {"llmc/comm/ring_step.h", "inline namespace io {\nint b;\n}\n", "llmc/comm/ring_step.h:1: namespace: no"},
    {"llmc/comm/ring_step.cpp", "#include \"llmc/comm/ring.h\"\n", ""},
    {"llmc/base/same.h", "int a;\n", "llmc/base/same.h:1: namespace: 'int a;' outside of"},
    {"llmc/io/text/same.h", "int a;\n", "llmc/io/text/same.h:1: names: llmc/base/same.h has"},
    {"llmc/ops/decl/op.h", "int a;\n", ""},
    {"llmc/ops/cuda/op.h", "int a;\n", ""},
    {"llmc/ops/cuda/tuning/op.h", "int a;\n", "llmc/ops/cuda/tuning/op.h:1: names"},
    {"llmc/ops/cpu/bare.h", "int a;\n", ""},
    {"llmc/ops/cuda/bare.h", "int a;\n", "llmc/ops/cuda/bare.h:1: names"},
    {"llmc/base/listed.h", "#pragma once\n#include <vector>\nstd::vector<int> a;\n", ""},
    {"llmc/base/lists.h", "#pragma once\n#include \"llmc/base/listed.h\"\nstd::vector<int> a;\n"
     "std::span<int> b;\n",
     "llmc/base/lists.h:4: include: std::span without #include <span>"},
    {"test/a_log.h", "int a;\n", ""},
    {"test/emulator/a_log.h", "int a;\n", "test/emulator/a_log.h:1: names"},
};

static constexpr Planted kPlantedStatements[] = {
    {"llmc/io/comma.cpp", "void f() {\n    int a = 1, b = 2;\n    a = 2, b = 3;\n}\n",
     "llmc/io/comma.cpp:3: statement commas"},
    {"llmc/io/comma_if.cpp", "    if (f(a, b)) a.b[1] += 1, c->d = {1, 2};\n",
     "llmc/io/comma_if.cpp:1: statement commas"},
    {"llmc/io/comma_for.cpp", "    for (;;)\n        f(i), g(j);\n",
     "llmc/io/comma_for.cpp:2: statement commas"},
    {"llmc/io/comma_lambda.cpp", "auto f = g([](int a) { h(a, 1), a++; });\n",
     "llmc/io/comma_lambda.cpp:1: statement commas"},
    {"llmc/io/comma_case.cpp", "    case A::b: a++, f();\n", "llmc/io/comma_case.cpp:1: statement commas"},
    {"llmc/io/comma_return.cpp", "    return a = b, true;\n", "llmc/io/comma_return.cpp:1: statement commas"},
    {"llmc/io/cond.cpp", "int a = b\n    ? 1\n    : c ? 2 : 3;\n", "llmc/io/cond.cpp:3: nested conditionals"},
    {"llmc/io/cond_call.cpp", "int a = b ? f(c ? 1 : 2) : 3;\n", "llmc/io/cond_call.cpp:1: nested cond"},
    {"llmc/io/cond_middle.cpp", "int a = b ? c ? 1 : 2 : 3;\n", "llmc/io/cond_middle.cpp:1: nested cond"},
    {"llmc/io/cond_first.cpp", "int a = (b ? c : d) ? 1 : 2;\n", "llmc/io/cond_first.cpp:1: nested cond"},
};
static constexpr const char* kPlainStatements = R"(inline namespace text {
int a, *b = nullptr;
struct S { int x, y; } s, t;
std::map<int, std::pair<int, int>> m, n(1, 2);
template <class T, class U> void f(T a, U b) {
    for (int i = 0, j = 0; i < j; i++, j--) f(i, j);
    const S s = {.x = a ? 1 : 2, .y = b ? 3 : 4}, &t = s;
    const auto g = [](int p, int q) { p = 1; return p < q; };
    if (a ? b : c) return d ? 1 : 2;
    else x = (b ? 1 : 2) + (c ? 3 : 4);
    if (c) return a ? h([&](int v) { return v ? 1 : 2; }) : g(a, b);
    f(a ? 1 : 2, b ? 3 : 4);
    m[a ? 1 : 2] = b ? 3 : 4;
    std::swap(a, b);
    return std::pair<T, U>(a, b);
}})";

TEST(check_finds_each_violation) {
    const std::string clean = made("clean"), model = clean + "/llmc/model/";
    write(model + "ok.h", "// \"<<<\", a zero in words\n#include \"llmc/ops/ops.h\"\nstruct S;\n");
    write(clean + "/llmc/io/table.h", "// generated by a script\n" + std::string(200, 'x') + "\n");
    for (const char* backend : {"decl", "cpu", "cuda/attention"})       // one operation, one name
        write(clean + "/llmc/ops/" + backend + "/op.h", "struct A;\n");
    write(clean + "/llmc/ops/cpu/op.cpp",
          "#include \"llmc/ops/cpu/op.h\"\n    a = b ? 1 : c ? 2 : 3, d = 4;\n");
    write(clean + "/llmc/io/text/plain.cpp", kPlainStatements);
    write(clean + "/llmc/README.md", "`ok`, `table`, `op`, `plain`\n");
    write(clean + "/Makefile", "# no -ffast-math\nall:\n\techo\n");
    for (char name = 'a'; name <= 'y'; name++) write(clean + "/llmc/train/watch/page/" + name + ".js", "");
    write(clean + "/llmc/train/watch/page/README.md", "");
    const auto ok = test::run("PYTHON=" + python() + " dev/check.sh --root " + clean);
    EXPECT(ok.code == 0 && has(ok.out, " 0 violations"), "%s%s", ok.out.c_str(), ok.err.c_str());

    const std::string root = made("planted");
    auto all = planted();
    all.push_back({"llmc/train/watch/page/z.js", "", "llmc/train/watch/page:1: rooms: 26 files, at most 25"});
    for (char name = 'a'; name <= 'y'; name++) write(root + "/llmc/train/watch/page/" + name + ".js", "");
    all.insert(all.end(), std::begin(kPlantedHeaders), std::end(kPlantedHeaders));
    all.insert(all.end(), std::begin(kPlantedStatements), std::end(kPlantedStatements));
    for (const Planted& p : all) write(root + "/" + p.path, p.content);
    const auto ran = test::run("PYTHON=" + python() + " dev/check.sh --root " + root);
    EXPECT(ran.code == 1, "exit %d", ran.code);
    for (const Planted& p : all)
        EXPECT(has("\n" + ran.out, std::string("\n") + p.finds), "no %s in%s", p.finds, ran.out.c_str());
}

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
