#include "test/log.h"

#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "llmc/base/console.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/generation.h"
#include "llmc/comm/agents/lease.h"
#include "test/member_of_plan.h"

// A run of a few steps, with everything that a log may be told.
static void a_run(const Config& c, int steps, double peak_tflops = kInfo.peak_tflops) {
    if (context.rank == 0) make_directories(c.run.dir);
    StartInfo info = kInfo;
    info.peak_tflops = peak_tflops;
    LoggedRun run(c, info);
    RunLog& log = run.log;
    const auto val = [&](const Validation& v) {
        run.state.add(v);
        log.val(v.step, v.loss, v.bits_per_byte);
        log.memory(v.step, size_t(1100000 + v.step));
    };
    val({0, 6.25, 2.5});
    for (int s = 1; s <= steps; s++) {
        run.begin();
        const bool finite = s != 3;
        run.train({.step = s,
                   .loss = finite ? 6 - 0.1 * s + 0.01 * (s % 7) : kNaN,
                   .norm = 1 + 0.001 * (s * 37 % 11),
                   .lr = 3e-4,
                   .finite = finite});
    }
    val({steps, 0.1, std::nullopt});
    log.sample(steps, "Once\nupon \"a\" \xff\xe2\x82 \x1b[31m\r time\n");
    run.state.step = steps;
    log.done(run.state, run.meter.totals, 1200000);
}

// The line without the values of the named keys.
static string without(string line, std::vector<const char*> keys) {
    for (const char* key : keys) {
        const size_t at = line.find(fmt::format("\"{}\":", key));
        if (at == string::npos) continue;
        const size_t begin = at + strlen(key) + 3, end = line.find_first_of(",}", begin);
        line.replace(begin, end - begin, "*");
    }
    return line;
}

TEST(metrics_are_those_of_the_interface) {
    const Config c = small("metrics");
    const string screen = printed([&] { a_run(c, 5); });
    const std::vector<string> rows = lines(read_file(c.run.dir + "/metrics.jsonl"));
    const string rates = R"("ms":*,"tokens_per_s":*,"mfu":*)";
    const string want[] = {
        R"({"event":"start","params":100000,"world":1,"device":"cpu, a \"name\"","plan_bytes":1234567,)"
        R"("precision":"fp32","threads":2,"vocab":512,"peak_tflops":*})",
        R"({"event":"val","step":0,"loss":6.25,"bits_per_byte":2.5})",
        R"({"event":"memory","step":0,"peak_bytes":1100000})",
        R"({"event":"train","step":1,"loss":5.91,"norm":1.004,"lr":3e-04,"tokens":512,)" + rates + "}",
        R"({"event":"train","step":2,"loss":5.819999999999999,"norm":1.008,"lr":3e-04,"tokens":1024,)" +
            rates + "}",
        R"({"event":"train","step":3,"loss":null,"norm":1.001,"lr":3e-04,"tokens":1536,)" +
            rates + R"(,"skipped":true})",
        R"({"event":"train","step":4,"loss":5.64,"norm":1.005,"lr":3e-04,"tokens":2048,)" + rates + "}",
        R"({"event":"train","step":5,"loss":5.55,"norm":1.009,"lr":3e-04,"tokens":2560,)" + rates + "}",
        R"({"event":"val","step":5,"loss":0.1})",
        R"({"event":"memory","step":5,"peak_bytes":1100005})",
        "{\"event\":\"sample\",\"step\":5,"
        "\"text\":\"Once\\nupon \\\"a\\\" \uFFFD\uFFFD\uFFFD \\u001b[31m\\r time\\n\"}",
        R"({"event":"done","step":5,"peak_bytes":1200000,"seconds":*})"};
    EXPECT(rows.size() == std::size(want), "%zu rows", rows.size());
    for (size_t i = 0; i < std::min(rows.size(), std::size(want)); i++) {
        const string row = without(rows[i], {"ms", "tokens_per_s", "mfu", "seconds", "peak_tflops"});
        EXPECT(row == want[i], "row %zu: '%s'", i, row.c_str());
    }
    EXPECT(read_file(c.run.dir + "/config.json") == to_json(c), "config.json is the resolved config");
    EXPECT(screen.find_first_of("\x1b\r\xff") == string::npos, "'%s'", screen.c_str());
    for (const char* words :
         {"100k parameters", "2 layers", "vocabulary 512", "102k tokens in all",
          "cpu, a \"name\", 2 threads, fp32", "3 shards", "1.23 MB planned", "5/200", "5.91000", "3.000e-04",
          "loss 6.25000 at step 0, 2.5000 bits per byte", "    | Once\n    | upon",
          "6.2500 at step 0, 0.1000 at step 5", "1.20 MB at most", "not finite"})
        EXPECT(screen.find(words) != string::npos, "no '%s' in '%s'", words, screen.c_str());
}

TEST(columns_are_aligned) {
    Config c = small("columns");
    c.log.every = 2, c.train.batch_tokens = 64;
    // these steps take no time: their rates are far off
    const std::vector<string> all = lines(printed([&] { a_run(c, 9, 1e4); }));
    std::vector<string> steps;
    for (const string& line : all)
        if (line.find("/200 ") != string::npos || line.find("tokens/s  ") != string::npos)
            steps.push_back(line);
    EXPECT(steps.size() == 6, "%zu lines: header, 2, 3 (skipped), 4, 6, 8", steps.size());
    for (const string& line : steps)
        EXPECT(line.size() == steps[0].size() && line.size() <= 110, "'%s'", line.c_str());
    EXPECT(lines(read_file(c.run.dir + "/metrics.jsonl")).size() == 16, "metrics.jsonl has every step");
}

TEST(two_runs_write_the_same) {
    const Config a = small("same_a"), b = small("same_b");
    printed([&] { a_run(a, 220); a_run(b, 220); });
    const std::vector<string> x = lines(read_file(a.run.dir + "/metrics.jsonl")),
                              y = lines(read_file(b.run.dir + "/metrics.jsonl"));
    const auto timeless = [](const string& s) {
        return without(s, {"ms", "tokens_per_s", "mfu", "seconds"});
    };
    EXPECT(x.size() == y.size() && x.size() == 227, "%zu and %zu", x.size(), y.size());
    for (size_t i = 0; i < x.size(); i++) EXPECT(timeless(x[i]) == timeless(y[i]), "%s", x[i].c_str());
    size_t scored = 0;
    for (const string& row : x)
        scored += row.find("\"loss_z\":") != string::npos && row.find("\"norm_z\":") != string::npos;
    EXPECT(scored == 220 - 201, "%zu: the window fills with 200 steps, one of which was not finite", scored);
}

TEST(scores_follow_their_formula) {
    Trailing t;
    std::vector<double> v;
    for (int i = 0; i < 600; i++) {
        const double x = std::sin(i * 0.7) + (i == 450 ? 50 : 0);
        const auto z = t.score(x);
        EXPECT(z.has_value() == (i >= 200), "step %d", i);
        if (z) {
            double sum = 0, square = 0;
            for (int k = i - 200; k < i; k++) sum += v[size_t(k)], square += v[size_t(k)] * v[size_t(k)];
            const double mean = sum / 200;
            EXPECT_NEAR(*z, (x - mean) / std::sqrt(square / 200 - mean * mean), 1e-9);
        }
        EXPECT(!t.score(kNaN) && !t.score(1 / 0.0), "what is not finite neither has a score nor enters");
        v.push_back(x);
    }
    Trailing flat;
    for (int i = 0; i < 300; i++) EXPECT(!flat.score(3), "no score where nothing varies");
}

static double number(const string& row, const char* key) {
    const size_t at = row.find(fmt::format("\"{}\":", key));
    return at == string::npos || row.compare(at + strlen(key) + 3, 4, "null") == 0
               ? kNaN
               : atof(row.c_str() + at + strlen(key) + 3);
}

TEST(rates_agree_with_the_clock) {
    Config c = small("rates");
    StartInfo info = kInfo;
    const auto row = [&] {
        std::filesystem::remove_all(c.run.dir);
        make_directories(c.run.dir);
        string screen = printed([&] {
            LoggedRun run(c, info);
            run.begin();
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            run.train({.step = 1, .loss = 1, .norm = 1, .lr = 1});
        });
        return lines(read_file(c.run.dir + "/metrics.jsonl"))[1] + screen;
    };
    const double flops = 6.0 * 100000 + 6.0 * 2 * 64 * 64;
    string r = row();
    const double ms = number(r, "ms"), rate = number(r, "tokens_per_s");
    EXPECT(ms >= 20 && ms < 20000, "%g ms", ms);
    EXPECT_NEAR(rate * ms, 512e3, 512e3 * 1e-3);
    EXPECT_NEAR(number(r, "mfu"), rate * flops / 0.5e12, 1e-3 * rate * flops / 0.5e12);
    const auto has = [&](const string& s) { return r.find(s) != string::npos; };
    const auto left = [&](double t) { return has("  " + human_seconds(199e-3 * t) + "\n"); };
    EXPECT(!has("mfu above") && (left(ms - 5e-4) || left(ms + 5e-4)), "%s", r.c_str());
    info.peak_tflops = 0, r = row();
    EXPECT(has("\"mfu\":null") && has(" n/a ") && has("matmul  of unknown rate"), "%s", r.c_str());
    info.peak_tflops = 1e-6, c.log.every = 0;
    r = row();
    EXPECT(number(r, "mfu") > 1 && has("mfu above 100"), "%s", r.c_str());
}

// Times and rates of a row are means of its interval; loss and norm are the step's.
TEST(a_row_has_the_means_of_its_interval) {
    StepLines rows;
    const string screen = printed([&] {
        rows.add({.step = 1, .loss = 3, .ms = 100, .tflops = 4, .mfu = 0.4}, 8, 64, false);
        rows.add({.step = 2, .loss = 2, .ms = 300, .tflops = 2, .mfu = 0.2}, 8, 64, true);
        rows.add({.step = 3, .loss = 1, .ms = 50, .tflops = 8, .mfu = 0.8}, 8, 64, true);
    });
    for (const char* cells : {"2/8    2.00000", " 200.0         320    2.5000   25.0%",
                              "3/8    1.00000", "  50.0       1,280    8.0000   80.0%"})
        EXPECT(screen.find(cells) != string::npos, "no '%s' in %s", cells, screen.c_str());
}
TEST(a_narrow_screen_gets_fewer_columns) {
    const std::vector<StepColumn> all = {{"step", "1", 15, 1}, {"norm", "2", 8, 3}, {"loss", "3", 9, 2}};
    for (const auto& [room, left] : {std::pair{0, 3}, {36, 3}, {35, 2}, {26, 2}, {25, 1}, {3, 1}}) {
        const auto columns = fitting_columns(all, room);
        EXPECT(int(columns.size()) == left && columns.back().title == string(left == 1 ? "step" : "loss"),
               "%d characters: %zu columns", room, columns.size());
    }
}

// ---------------------------------------------------------------------------------------------------------
// run.dir

static void expect_refused(const Config& c, std::vector<const char*> words) {
    const Fatal e = test::fatal_of([&] { RunLog log(c); });
    EXPECT(e.code == kExitConfig, "%s: code %d", c.run.dir.c_str(), e.code);
    for (const char* w : words) EXPECT(strstr(e.what(), w), "no '%s' in '%s'", w, e.what());
}

TEST(a_run_dir_is_refused) {
    Config c = small_run("a/b/c");
    { RunLog log(c); }
    EXPECT(std::filesystem::is_empty(c.run.dir), "nothing is made before start");
    printed([&] { a_run(c, 1); });
    const string config = read_file(c.run.dir + "/config.json");
    expect_refused(c, {c.run.dir.c_str(), "already holds a run, finished", "--run.dir=", "rm -r"});
    EXPECT(read_file(c.run.dir + "/config.json") == config, "untouched");

    Config saved = small("saved"), mine = small("mine");
    std::filesystem::create_directories(saved.run.dir + "/step_10");
    saved.checkpoint.resume = "never";
    expect_refused(saved, {"already holds a run"});
    std::filesystem::create_directories(mine.run.dir);
    std::ofstream(mine.run.dir + "/config.json") << "{}";
    expect_refused(mine, {"config.json", "would replace", "--run.dir="});
}

// The target of a symbolic link, and the other name of a hard link, keep their text.
TEST(no_file_of_a_run_is_written_through_a_link) {
    namespace fs = std::filesystem;
    const char* const names[] = {"config.json", "metrics.jsonl", "checkpoints.jsonl"};
    for (const bool hard : {false, true}) {
        const Config c = small_run(hard ? "hard" : "symbolic");
        const string others = c.run.dir + "_others";
        make_directories(others);
        for (const char* name : names) {
            const string target = others + "/" + name, link = c.run.dir + "/" + name;
            write_file(target, strcmp(name, "metrics.jsonl") ? "" : "{\"event\":\"start\"}\n");
            fs::remove(link);
            hard ? fs::create_hard_link(target, link) : fs::create_symlink(target, link);
        }
        RunState state;
        printed([&] {
            RunLog log(c);
            EXPECT(read_file(c.run.dir + "/metrics.jsonl").size() > 0, "rows are lost");
            log.start(c, kInfo, c.run.dir + "/step_0", state);
        });
        const string rows = read_file(c.run.dir + "/metrics.jsonl");
        EXPECT(lines(rows).size() == 2, "'%s'", rows.c_str());
        for (const char* name : names) {
            const string path = c.run.dir + "/" + name, target = others + "/" + name;
            EXPECT(!fs::is_symlink(path) && fs::hard_link_count(path) == 1, "%s is a link", path.c_str());
            EXPECT(read_file(target) == (strcmp(name, "metrics.jsonl") ? "" : "{\"event\":\"start\"}\n"),
                   "%s has '%s'", target.c_str(), read_file(target).c_str());
        }
    }
}

// A link that leads nowhere makes no file there.
TEST(a_link_that_leads_nowhere_gets_no_target) {
    namespace fs = std::filesystem;
    const Config c = small_run("nowhere");
    const string target = c.run.dir + "_target";
    fs::create_symlink(target, c.run.dir + "/metrics.jsonl");
    fs::create_symlink("checkpoints.jsonl", c.run.dir + "/checkpoints.jsonl");
    printed([&] { a_run(c, 1); });
    EXPECT(!fs::exists(target), "%s is made", target.c_str());
    EXPECT(lines(read_file(c.run.dir + "/metrics.jsonl")).size() > 2, "no rows");
}

TEST(only_rank_0_writes) {
    const Config c = small("rank1");
    context.rank = 1;
    const string screen = printed([&] { a_run(c, 2); });
    context.rank = 0;
    EXPECT(screen.empty() && !std::filesystem::exists(c.run.dir), "'%s'", screen.c_str());
}

// Others went on from step 1 while this rank slept, and have rows of step 2.
TEST(a_rank_that_wakes_up_behind_its_plan_writes_no_row) {
    const Config c = small("slept");
    make_directories(c.run.dir);
    const test::MemberOfPlan rank(2, 5);
    LoggedRun run(c, kInfo);
    run.begin();
    run.train({.step = 1, .loss = 6, .norm = 1, .lr = 3e-4});
    const string before = read_file(c.run.dir + "/metrics.jsonl");
    EXPECT(claim_run_files(c.run.dir, 2, 6) && lines(before).size() == 2, "%s", before.c_str());
    bool lost = false;
    try {
        run.begin();
        run.train({.step = 2, .loss = 6, .norm = 1, .lr = 3e-4});
    } catch (const Lost&) { lost = true; }
    EXPECT(lost && read_file(c.run.dir + "/metrics.jsonl") == before, "a row of step 2");
}
