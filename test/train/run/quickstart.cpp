// scripts/quickstart.sh in a copy of the tree, with small scripts for make, apt-get, the compiler, tokenize
// and train_gpt, which note their arguments: installed packages, kept files, output, and stops.
#include "llmc/base/json/json_value.h"
#include "test/script_helpers.h"

struct Machine {
    std::string root, bin, python_of_runs;

    explicit Machine(const std::string& name) : root(made(name)), bin(root + "/bin") {
        test::run("mkdir -p " + root + "/data && cp -r scripts " + root);
        test::run("cp data/*.py " + root + "/data");
        for (int i = 1; i <= 6; i++) {
            const std::string novel = "/0" + std::to_string(i) + "_novel.txt";
            write(root + "/data/austen" + novel, "A novel.\n");
            write(root + "/data/austen/train" + novel, "A novel.\n");
        }
        // a g++ with every header except the lines of `absent`
        program("g++", "if [ \"$1\" = -dumpversion ]; then echo 12; exit; fi\n"
                       "if [ -s " + root + "/absent ]; then ! grep -qf " + root + "/absent -; fi");
        program("make", "true");
        program("id", "echo 0");
        program("sudo", "exit 1");
        program("apt-get", "if [ $1 = install ]; then rm -f " + root + "/absent; fi");
        write_program(root + "/tokenize", "echo tokenize $@ >>" + root + "/calls");
        write_program(root + "/train_gpt",
                      "case \"$*\" in *--plan*) printf 'total 1 MB\\n\\n{\\n  \"of\": \"%s\"\\n}\\n\\n' "
                      "\"$*\"; exit;; esac\n"
                      "echo train_gpt $@ >>" + root + "/calls; mkdir -p runs/quickstart\n"
                      "cat >runs/quickstart/metrics.jsonl <<'EOF'\n"
                      "{\"event\":\"train\",\"step\":5,\"loss\":3.1,\"tokens\":99}\n"
                      "{\"event\":\"val\",\"step\":0,\"loss\":8.3,\"bits_per_byte\":2.91}\n"
                      "{\"event\":\"val\",\"step\":5,\"loss\":3.25,\"bits_per_byte\":1.234}\n"
                      "{\"event\":\"sample\",\"step\":5,\"text\":\"The lighthouse was lit.\"}\nEOF");
    }
    void program(const std::string& name, const std::string& body) const {
        write_program(bin + "/" + name, "echo " + name + " $@ >>" + root + "/calls\n" + body);
    }
    test::Ran run(const std::string& arguments = "") const {
        std::filesystem::remove(root + "/calls");
        return test::run("PATH=" + bin + ":$PATH CXX= " + python_of_runs + root + "/scripts/quickstart.sh " +
                         arguments);
    }
    // Runs end without a plot, which takes longer than the rest.
    void plot_nothing() {
        program("plain_python", "[ \"$1\" != -c ] && exec " + python() + " \"$@\"");
        python_of_runs = "PYTHON=" + bin + "/plain_python ";
    }
    std::string calls() const { return read(root + "/calls"); }
};

TEST(nothing_is_installed_where_all_is_there) {
    const Machine m("quick");
    const auto ran = m.run("--train.steps=5");
    EXPECT(ran.code == 0, "exit %d: %s%s", ran.code, ran.out.c_str(), ran.err.c_str());
    EXPECT(!has(m.calls(), "apt-get"), "apt-get is called:\n%s", m.calls().c_str());
    EXPECT(has(m.calls(), "train_gpt scripts/quickstart.json --train.steps=5"), "%s", m.calls().c_str());
    const std::string calls = m.calls(), built = calls.substr(calls.find("make "));
    EXPECT(has(calls, "make -j") && built.substr(0, built.find('\n')).ends_with(" train_gpt tokenize"),
           "more than the two programs is built, or less:\n%s", calls.c_str());
    EXPECT(has(m.calls(), "--vocab=4096 --out=data/austen/tokenizer.json data/austen/train/01_"),
           "the tokenizer sees more than the training part:\n%s", m.calls().c_str());
    EXPECT(has(m.calls(), "--val=0.1 data/austen/01_novel.txt"), "%s", m.calls().c_str());
    for (const char* part : {"1. Tools", "6. Training", "7. Result", "1.234", "The lighthouse was lit.",
                             "./train_gpt --watch=runs", "quickstart.json --report"})
        EXPECT(has(ran.out, part), "no '%s' in:\n%s", part, ran.out.c_str());
    EXPECT(!has(ran.out, "\x1b") && !has(ran.out, "\r"), "escape codes where stdout is no terminal");
    const bool plots = test::run(python() + " -c 'import matplotlib'").code == 0;
    EXPECT(std::filesystem::exists(m.root + "/runs/quickstart/curve.png") == plots, "%s", ran.out.c_str());
    EXPECT(has(ran.out, "no plot") == !plots, "%s", ran.out.c_str());
}

TEST(an_earlier_run_is_kept) {
    Machine m("again");
    m.plot_nothing();
    for (int i = 0; i < 3; i++) {
        write(m.root + "/runs/quickstart/mark", std::to_string(i));
        const auto ran = m.run();
        EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
        const std::string kept = "runs/quickstart." + std::to_string(i + 1);
        EXPECT(has(ran.out, "kept as " + kept), "%s", ran.out.c_str());
        EXPECT(read(m.root + "/" + kept + "/mark") == std::to_string(i), "%s is another run", kept.c_str());
        EXPECT(!std::filesystem::exists(m.root + "/runs/quickstart/mark"), "the new run is not new");
    }
}

TEST(a_run_that_was_stopped_goes_on) {
    Machine m("stopped");
    m.plot_nothing();
    const std::string run = m.root + "/runs/quickstart", start = "{\"event\":\"start\",\"params\":1}\n",
                      train = "{\"event\":\"train\",\"step\":11}\n",
                      done = "{\"event\":\"done\",\"step\":20}\n",
                      resume = "{\"event\":\"resume\",\"step\":20}\n",
                      other = "{\n  \"of\": \"scripts/quickstart.json --plan=full\"\n}\n",
                      same = "{\n  \"of\": \"scripts/quickstart.json --a=1 --plan=full\"\n}\n";
    struct Case { const char* what; std::string metrics, config; bool saved, goes_on; };
    const std::vector<Case> cases = {
        {"saved before its end", start + train, same, true, true},
        {"not saved", start + train, same, false, false},
        {"at its end", start + train + done, same, true, false},
        {"stopped after its end", start + train + done + resume + train, same, true, true},
        {"ended at the second start", start + train + resume + train + done, same, true, false},
        {"other settings", start + train, other, true, false},
        {"no metrics", "", same, true, false}};
    int kept = 0;
    for (const Case& c : cases) {
        std::filesystem::remove_all(run);
        write(run + "/mark", c.what), write(run + "/config.json", c.config);
        if (!c.metrics.empty()) write(run + "/metrics.jsonl", c.metrics);
        if (c.saved) write(run + "/step_11/manifest.json", "{}");
        const auto ran = m.run("--a=1");
        const std::string now = c.goes_on ? run : run + "." + std::to_string(++kept);
        EXPECT(ran.code == 0 && has(ran.out, "it goes on") == c.goes_on, "%s: %d %s%s", c.what, ran.code,
               ran.out.c_str(), ran.err.c_str());
        EXPECT(read(now + "/mark") == c.what && std::filesystem::exists(run + ".1") == (kept > 0), "%s: %s",
               c.what, ran.out.c_str());
    }
}

// ... with the real programs: a run without its last row counts as stopped.
TEST(a_real_run_goes_on) {
    Machine m("real");
    m.plot_nothing();
    const std::string here = std::filesystem::current_path(),
                      metrics = m.root + "/runs/quickstart/metrics.jsonl";
    for (const char* name : {"train_gpt", "tokenize"}) {
        std::filesystem::remove(m.root + "/" + name);
        std::filesystem::create_symlink(here + "/" + name, m.root + "/" + name);
    }
    test::run("cd " + m.root + "/data/austen && for f in 0*.txt train/*.txt; do seq 3000 >$f; done");
    const std::string options = "--train.steps=2 --model.layers=1 --eval.batches=1 --sample.every=0";
    auto ran = m.run(options);
    EXPECT(ran.code == 0 && has(ran.out, "done    2 steps"), "%s%s", ran.out.c_str(), ran.err.c_str());
    const std::string rows = read(metrics);
    write(metrics, rows.substr(0, rows.find("{\"event\":\"done\"")));
    ran = m.run(options);
    EXPECT(ran.code == 0 && has(ran.out, "it goes on") && has(ran.out, "goes on from runs/quickstart/step_2"),
           "%s%s", ran.out.c_str(), ran.err.c_str());
    ran = m.run(options);
    EXPECT(ran.code == 0 && has(ran.out, "kept as runs/quickstart.1"), "%s%s", ran.out.c_str(),
           ran.err.c_str());
}

TEST(python_is_the_one_that_is_named) {
    const Machine m("python");
    write(m.root + "/absent", "zstd.h\n");
    auto ran = test::run("PYTHON=/nope PATH=" + m.bin + ":$PATH CXX= " + m.root + "/scripts/quickstart.sh");
    expect_error(ran, {"PYTHON=/nope"});
    EXPECT(!has(m.calls(), "apt-get"), "%s", m.calls().c_str());
    m.program("other_python", "exec " + python() + " \"$@\"");
    ran = test::run("PYTHON=" + m.bin + "/other_python PATH=" + m.bin + ":$PATH CXX= " + m.root +
                    "/scripts/quickstart.sh");
    EXPECT(ran.code == 0 && has(m.calls(), "other_python scripts/summary.py runs/quickstart"), "%d %s",
           ran.code, m.calls().c_str());
}

TEST(missing_packages_are_installed) {
    const Machine m("install");
    write(m.root + "/absent", "zstd.h\ncxxopts.hpp\n");
    const auto ran = m.run();
    EXPECT(ran.code == 0, "exit %d: %s", ran.code, ran.err.c_str());
    const std::string calls = m.calls();
    const size_t update = calls.find("apt-get update"), install = calls.find("apt-get install");
    EXPECT(update < install && install != calls.npos, "apt-get update comes first:\n%s", calls.c_str());
    EXPECT(has(calls, "--no-install-recommends libzstd-dev libcxxopts-dev\n"), "%s", calls.c_str());
}

TEST(make_test_installs_what_tests_lack) {
    const Machine m("lacks");
    test::run("mkdir " + m.root + "/test && cp test/install.sh " + m.root + "/test");
    const auto install = [&](const std::string& variables) {
        write(m.root + "/absent", "zstd.h\n"), write(m.root + "/calls", "");
        return test::run("env -u INSTALL " + variables + " PATH=" + m.bin + ":$PATH CXX= " + m.root +
                         "/test/install.sh");
    };
    auto ran = install("");
    const std::string calls = m.calls();
    EXPECT(ran.code == 0 && has(ran.out, "install  libzstd-dev"), "%d %s%s", ran.code, ran.out.c_str(),
           ran.err.c_str());
    EXPECT(calls.find("apt-get update") < calls.find("--no-install-recommends libzstd-dev\n"), "%s",
           calls.c_str());
    ran = install("INSTALL=0");
    EXPECT(ran.code == 0 && !has(m.calls(), "apt-get"), "%d %s", ran.code, m.calls().c_str());
    m.program("apt-get", "exit 100");
    ran = install("");
    EXPECT(ran.code == 0 && has(ran.err, "cannot install libzstd-dev, so what needs it is left out"), "%d %s",
           ran.code, ran.err.c_str());
    m.program("id", "echo 1000");
    ran = install("");
    EXPECT(ran.code == 0 && has(ran.err, "apt-get install -y libzstd-dev") && !has(m.calls(), "apt-get"),
           "%d %s%s", ran.code, ran.err.c_str(), m.calls().c_str());
}

// make does not miss a library before quickstart has installed the package.
TEST(make_quickstart_begins_without_an_error) {
    const std::string make =
        "env -u MAKEFLAGS -u MAKELEVEL make -n CXX=false BUILD=" + made("build") + "/new ";
    const test::Ran quickstart = test::run(make + "quickstart"), all = test::run(make + "all");
    EXPECT(quickstart.code == 0 && quickstart.err.empty() && has(quickstart.out, "scripts/quickstart.sh"),
           "code %d, '%s'", quickstart.code, quickstart.err.c_str());
    EXPECT(all.code != 0 && has(all.err, "missing libraries. Install them with:  apt-get install"), "'%s'",
           all.err.c_str());
}

TEST(without_root_the_line_is_printed) {
    const Machine m("no_root");
    write(m.root + "/absent", "zstd.h\ndnnl.hpp\n");
    m.program("id", "echo 1000");
    auto ran = m.run();
    expect_error(ran, {"sudo sh -c 'apt-get update && apt-get install -y libzstd-dev libdnnl-dev'"});
    EXPECT(!has(m.calls(), "apt-get"), "apt-get is called:\n%s", m.calls().c_str());
    m.program("sudo", "shift; exec \"$@\"");        // a sudo without a password
    ran = m.run();
    EXPECT(ran.code == 0 && has(m.calls(), "apt-get install"), "exit %d: %s", ran.code, ran.err.c_str());
}

// make waits until quickstart has said how far make is.
TEST(a_build_says_how_far_it_is) {
    const Machine m("build_lines");
    const std::string screen = m.root + "/screen";
    m.program("make", "case \"$*\" in *-n*) echo 'echo \"c++   a\"'; echo 'echo \"c++   b\"'; exit;; esac\n"
                      "echo 'c++   a'; for i in $(seq 600); do\n"
                      "    grep -q compiling " + screen + " && exit; sleep 0.1\ndone; exit 1");
    const auto ran = test::run("PROGRESS=1 PATH=" + m.bin + ":$PATH CXX= " + m.root +
                               "/scripts/quickstart.sh >" + screen);
    const std::string out = read(screen);
    EXPECT(ran.code == 0 && has(out, "... \n   compiling 1 of 2 files, "), "%d %s%s", ran.code, out.c_str(),
           ran.err.c_str());
    EXPECT(!has(out, "\x1b") && !has(out, "\r"), "escape codes where stdout is no terminal");
}

TEST(a_run_that_is_killed_loses_little) {
    const Json preset = parse_json(read("scripts/quickstart.json"));
    const double every = preset.at("checkpoint").at("every").number();
    EXPECT(every > 0 && every <= preset.at("train").at("steps").number() / 16, "each %g steps", every);
}

TEST(a_failed_step_is_named) {
    const Machine m("fails");
    write(m.root + "/absent", "zstd.h\n");
    m.program("apt-get", "echo 'E: no network'; exit 100");
    expect_error(m.run(), {"apt-get update failed", "E: no network"});
    std::filesystem::remove(m.root + "/absent");
    m.program("make", "echo 'x.cpp:1: error: no'; exit 2");
    expect_error(m.run(), {"the build failed", "x.cpp:1: error: no"});
    m.program("make", "true");
    std::filesystem::remove(m.root + "/data/austen/06_novel.txt");
    expect_error(m.run(), {"could not be fetched", "r-cran-janeaustenr", "no network", "data/README.md"});
    std::filesystem::remove_all(m.root + "/data/austen.py");
    write(m.root + "/data/austen.py", "raise KeyError('a surprise')\n");
    const auto surprised = m.run();
    EXPECT(surprised.code == 1 && has(surprised.err, "a surprise"), "'%s'", surprised.err.c_str());
    write(m.root + "/data/austen/06_novel.txt", "A novel.\n");
    write_program(m.root + "/train_gpt", "exit 77");
    const auto ran = m.run();
    EXPECT(ran.code == 77 && has(ran.err, "exit code 77"), "exit %d: %s", ran.code, ran.err.c_str());
    write_program(m.root + "/train_gpt", "exit 75");
    const auto stopped = m.run();
    EXPECT(stopped.code == 75 && stopped.err.empty(), "exit %d: %s", stopped.code, stopped.err.c_str());
}
