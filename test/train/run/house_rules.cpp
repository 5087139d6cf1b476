// `make check`: a violation of each rule is planted, and found in its line; the clean tree passes.
#include "test/script_helpers.h"

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

static constexpr Planted kPlantedTexts[] = {
    {"llmc/io/files/own.h", "// Own files.\n", "llmc/io/files:1: first header: one header begins"},
    {"llmc/io/text/one.h", "// Room io/text: texts. Called by f. It knows no g.\n", ""},
    {"llmc/io/text/two.h", "// Room text: texts. Called by f. It knows no g.\n",
     "llmc/io/text/two.h:1: first header: expected '// Room io/text: '"},
    {"llmc/io/text/z.h", "int a;\n", "llmc/io/text:1: first header: one header begins with a text about the "
     "room: found llmc/io/text/one.h, llmc/io/text/two.h"},
    {"llmc/io/corpus/no_limit.h", "// Room io/corpus: f calls.\n//\n// It knows no g.\n",
     "llmc/io/corpus/no_limit.h:1: first header: does not say what"},
    {"llmc/io/unicode/no_caller.h", "// Room io/unicode: texts.\n// It does not know g.\n",
     "llmc/io/unicode/no_caller.h:1: first header: does not say who"},
    {"llmc/train/run/many.h", "// Room train/run: f calls.\n// 2\n// 3\n// 4\n// 5\n// 6\n// 7\n// 8\n"
     "// 9\n// 10\n// It knows no g.\n", "llmc/train/run/many.h:11: first header: more than 10 lines"},
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
    const std::string about = ": \"<<<\", a zero in words.\n// Called by main(). It knows no axis.\n";
    write(model + "ok.h", "// Room model" + about + "#include \"llmc/ops/ops.h\"\nstruct S;\n");
    write(clean + "/llmc/io/table.h", "// generated by a script\n" + std::string(200, 'x') + "\n");
    for (const std::string room : {"ops/decl", "ops/cpu", "ops/cuda/attention"})    // one operation's name
        write(clean + "/llmc/" + room + "/op.h", "// Room " + room + about + "struct A;\n");
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
    all.insert(all.end(), std::begin(kPlantedTexts), std::end(kPlantedTexts));
    all.insert(all.end(), std::begin(kPlantedStatements), std::end(kPlantedStatements));
    for (const Planted& p : all) write(root + "/" + p.path, p.content);
    const auto ran = test::run("PYTHON=" + python() + " dev/check.sh --root " + root);
    EXPECT(ran.code == 1, "exit %d", ran.code);
    for (const Planted& p : all)
        EXPECT(has("\n" + ran.out, std::string("\n") + p.finds), "no %s in%s", p.finds, ran.out.c_str());
}
