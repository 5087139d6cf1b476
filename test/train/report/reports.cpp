// Files for other programs: TensorBoard's records, and Prometheus' text.
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "llmc/base/terminal.h"
#include "llmc/train/report/embedded.h"
#include "llmc/train/report/event_file.h"
#include "llmc/train/report/prometheus.h"
#include "test/log.h"
#include "test/read_events.h"
#include "test/task_file.h"

using std::string;
using std::vector;
using namespace test;

TEST(crc32c_is_castagnolis) {
    // RFC 3720, B.4: 32 bytes of zeros, and the check value of the catalogue of CRCs
    const auto masked = [](uint32_t c) { return (c >> 15 | c << 17) + 0xa282ead8u; };
    EXPECT(masked_crc32c(string(32, '\0')) == masked(0x8a9136aau), "zeros");
    EXPECT(masked_crc32c("123456789") == masked(0xe3069283u), "digits");
}

TEST(records_come_back) {
    const string dir = temporary_directory();
    {
        EventFile file;
        file.add({.step = 1, .scalars = vector<Scalar>{{"x", 1}}});                  // before open(): nothing
        file.open(dir, -1);
        file.add({.step = 1, .scalars = vector<Scalar>{{"train/loss", 4.5}, {"train/norm", 0.25}}});
        file.add({.event = "sample", .step = 1, .text = "a \"b\"\n\xc3\xa9"});
        file.add({.step = 300, .scalars = vector<Scalar>{{"train/loss", 2}}});
    }
    const string path = dir + "/" + EventFile::kName;
    const vector<string> whole = {"brain.Event:2", "1 train/loss 4.5", "1 train/norm 0.25",
                                  "1 sample/text a \"b\"\n\xc3\xa9", "300 train/loss 2"};
    EXPECT(read_events(path) == whole, "%zu rows", read_events(path).size());
    // resumed at 200, after a crash in the middle of a record
    { std::ofstream(path, std::ios::app | std::ios::binary) << "torn"; }
    EventFile file;
    file.open(dir, 200);
    file.add({.step = 201, .scalars = vector<Scalar>{{"train/loss", 3}}});
    vector<string> resumed(whole.begin(), whole.end() - 1);
    resumed.push_back("201 train/loss 3");
    EXPECT(read_events(path) == resumed, "%zu rows", read_events(path).size());
    EventFile again;
    again.open(dir, -1);
    EXPECT(read_events(path) == vector<string>{"brain.Event:2"}, "a run that starts anew");
}

// Counts, limits that rise up to the largest element, and the sums.
TEST(histograms_come_back) {
    const string dir = temporary_directory() + "/histograms";
    std::filesystem::create_directory(dir);
    Spread s{.count = 10, .zeros = 1, .nonfinite = 2, .squares = 21, .sum = 9};
    s.largest = 4, s.bins[spread_bin(0.5)] = 3, s.bins[spread_bin(1.)] = 3, s.bins[spread_bin(4.)] = 1;
    Spread none_small = s, huge{.count = 1, .squares = 1e20, .sum = 1e10}, empty;
    none_small.zeros = 0;
    huge.largest = 1e10, huge.bins[kSpreadBins - 1] = 1;
    EventFile file;
    file.open(dir, -1);
    const Histogram all[] = {{"weights/a", s}, {"weights/b", none_small}, {"c", huge}, {"d", empty}};
    file.add({.step = 5, .histograms = all});
    file.add({.step = 6, .scalars = vector<Scalar>{{"train/loss", 3}}});
    const auto found = read_histograms(dir + "/" + EventFile::kName);
    EXPECT(found.size() == 4, "%zu", found.size());
    const ReadHistogram& a = found.at("5 weights/a");
    EXPECT(a.min == 0 && a.max == 4 && a.num == 8 && a.sum == 9 && a.sum_squares == 21);
    EXPECT(a.limits.size() == size_t(3 - kLowestBin) && a.buckets.size() == a.limits.size() &&
           a.buckets[0] == 1 && a.limits.back() == 8 && a.buckets.back() == 1, "%zu", a.limits.size());
    const ReadHistogram& b = found.at("5 weights/b");
    EXPECT((b.limits == vector<double>{1, 2, 4, 8} && b.buckets == vector<double>{3, 3, 0, 1}));
    EXPECT(b.min == 0.5);
    EXPECT(found.at("5 c").limits == vector<double>{1e10} && found.at("5 d").num == 0);
}

// A misspelt word of a row would be a figure that some file lacks.
TEST(the_table_of_figures_has_known_words) {
    const json table = json::parse(figures_json());
    const std::map<string, std::set<string>> known = {
        {"", {"of", "key", "json", "unknown", "tag", "extremes", "prometheus", "column", "chart"}},
        {"json", {"real", "whole"}}, {"unknown", {"null", "absent"}},
        {"prometheus", {"name", "help", "scale"}}, {"column", {"title", "format", "width", "keep"}},
        {"chart", {"place", "title", "unit", "write", "rows", "calm", "log", "dashed"}},
        {"write", {"loss", "plain", "percent", "rate", "ms", "joules", "bytes"}}};
    const auto check = [&](const string& of, const string& word) {
        EXPECT(known.at(of).contains(word), "'%s' of '%s'", word.c_str(), of.c_str());
    };
    std::set<string> done;
    std::set<int> places;
    string last;
    for (const json& row : table) {
        for (const auto& [word, value] : row.items()) {
            check("", word);
            if (value.is_string() && known.contains(word)) check(word, value);
            if (value.is_object())
                for (const auto& [inner, v] : value.items()) check(word, inner);
        }
        const bool next = row["of"] != last;
        last = row["of"];
        EXPECT(!next || done.insert(last).second, "rows of %s are in two places", last.c_str());
        if (!row.contains("chart")) continue;
        check("write", row["chart"]["write"]);
        const int place = row["chart"]["place"];
        EXPECT(row.contains("tag") && places.insert(place).second, "%s", row.dump().c_str());
    }
    EXPECT(all_figures().size() == table.size() && places.size() == 14, "%zu", places.size());
}

// As `promtool check metrics` asks; dev/reports_judge.py holds a run's own file against it.
TEST(names_of_metrics_have_base_units) {
    for (const Figure& f : all_figures()) {
        const string& name = f.prometheus.name;
        for (const char* unit : {"bits", "ms", "milliseconds", "minutes", "kilobytes", "percent"})
            EXPECT((name + "_").find(fmt::format("_{}_", unit)) == name.npos, "%s", name.c_str());
    }
}

TEST(a_label_is_valid_UTF8) {
    EXPECT(PrometheusFile("", "runs/a\xff\xc3/").metrics.run == "a\ufffd\ufffd", "invalid bytes of a folder");
}

TEST(metrics_are_prometheus_text) {
    RunMetrics a("a"), b("odd\"\\\n");
    a.at("train", "step") = 3, a.at("train", "loss") = 2.5, b.at("train", "step") = 4;
    const RunMetrics both[] = {a, b};
    EXPECT(prometheus_text(both) ==
           "# HELP train_gpt_step_total Optimizer steps done.\n# TYPE train_gpt_step_total counter\n"
           "train_gpt_step_total{run=\"a\"} 3\ntrain_gpt_step_total{run=\"odd\\\"\\\\\\n\"} 4\n"
           "# HELP train_gpt_loss Mean cross-entropy of the last step, nats per token.\n"
           "# TYPE train_gpt_loss gauge\ntrain_gpt_loss{run=\"a\"} 2.5\n", "%s",
           prometheus_text(both).c_str());
}

// The scalars of a run, as metrics.jsonl has them.
static vector<string> expected_events(const string& run) {
    vector<string> rows;
    for (const json& row : rows_of(run)) {
        const string event = row["event"];
        const auto add = [&](const string& tag, const char* key) {
            if (row.contains(key) && row[key].is_number())
                rows.push_back(fmt::format("{} {} {}", int(row["step"]), tag, float(row[key])));
        };
        if (event == "train" || event == "val")
            for (const char* key : {"loss", "norm", "lr", "ms", "tokens_per_s", "mfu", "loss_z", "norm_z",
                                    "joules", "bits_per_byte"})
                add(event + "/" + key, key);
        if (event == "comm") add("comm/wait_ms", "wait_ms");
        if (event == "memory") add("memory", "peak_bytes");
        if (event == "task") add("tasks/ends", "accuracy"), add("tasks/ends_norm", "accuracy_norm");
        if (event != "sample") continue;
        rows.push_back(fmt::format("{} sample/text {}", int(row["step"]), printable(string(row["text"]))));
    }
    return rows;
}

// Also of figures that no run on a CPU has. One that is unknown has no row.
TEST(each_figure_of_a_step_has_its_tag) {
    Config c = small_run("tags");
    c.log.tensorboard = true;
    printed([&] {
        LoggedRun run(c, kInfo);
        run.log.train({.step = 1, .loss = 2, .norm = 3, .lr = 4, .joules = 5, .ms = 6, .tokens_per_s = 7,
                       .mfu = 0.5, .loss_z = 8, .norm_z = 9});
        run.log.comm(1, {.rows = {{.name = "dp.all_reduce", .calls = 1, .bytes = 1, .seconds = 0.25}},
                         .device = {.busy = 0.5, .waited = 0.125}});
        run.log.val(1, 10, 11);
        run.log.train({.step = 2, .loss = 12, .norm = 13, .lr = 14, .ms = 15, .tokens_per_s = 16,
                       .mfu = kUnknown});
        run.log.comm(2, {.rows = {{.name = "dp.all_reduce", .calls = 1, .bytes = 1, .seconds = 0.5}},
                         .device = {}});
        run.log.val(2, 17, {});
    });
    const vector<string> want = {
        "brain.Event:2", "1 train/loss 2", "1 train/norm 3", "1 train/lr 4", "1 train/ms 6",
        "1 train/tokens_per_s 7", "1 train/mfu 0.5", "1 train/joules 5", "1 train/loss_z 8",
        "1 train/norm_z 9", "1 comm/wait_ms 250", "1 comm/device_wait_ms 125", "1 comm/hidden 0.75",
        "1 val/loss 10", "1 val/bits_per_byte 11", "2 train/loss 12", "2 train/norm 13", "2 train/lr 14",
        "2 train/ms 15", "2 train/tokens_per_s 16", "2 comm/wait_ms 500", "2 val/loss 17"};
    const vector<string> found = read_events(c.run.dir + "/" + EventFile::kName);
    for (size_t i = 0; i < std::max(found.size(), want.size()); i++) {
        const string is = i < found.size() ? found[i] : "none", wanted = i < want.size() ? want[i] : "none";
        EXPECT(is == wanted, "row %zu: '%s', expected '%s'", i, is.c_str(), wanted.c_str());
    }
}

TEST(a_run_writes_them) {
    const string prom = folder("board.prom"), path = folder("board") + "/" + EventFile::kName;
    const string ends = task_file("ends", R"("accuracy": "sum", "accuracy_norm": "bytes")",
                                  {{"the small", {" model", " zebra"}}});
    json changes = text_config();
    changes.merge_patch({{"log", {{"tensorboard", true}, {"prometheus", prom}, {"comm", true}}},
                         {"parallel", {{"ranks", 2}, {"transport", "threads"}}}, {"train", {{"steps", 10}}},
                         {"eval", {{"every", 5}, {"tasks", {ends}}, {"task_every", 5}}},
                         {"sample", {{"every", 5}}}, {"checkpoint", {{"every", 5}, {"keep_last", 9}}}});
    const string config = tiny_program_config("board", changes);
    for (const bool resumed : {false, true}) {
        if (resumed) run("rm -r " + folder("board") + "/step_10");
        const Ran ran = train_gpt(config);
        EXPECT(ran.code == 0, "'%s'", ran.err.c_str());
        const vector<string> events = read_events(path), expected = expected_events("board");
        size_t found = 0;
        for (const string& row : expected) found += std::count(events.begin(), events.end(), row) == 1;
        EXPECT(!expected.empty() && found == expected.size(), "%zu of %zu rows", found, expected.size());
        const auto losses = std::count_if(events.begin(), events.end(), [](const string& row) {
            return row.find(" train/loss ") != string::npos;
        });
        EXPECT(losses == 10, "%d steps", int(losses));
        const json last = rows_of("board", "train").back();
        const string text = text_of(prom);
        for (const auto& [name, value] : {std::pair<string, double>{"step_total", 10}, {"loss", last["loss"]},
                                          {"tokens_per_second", last["tokens_per_s"]}}) {
            const string line = "train_gpt_" + name + "{run=\"board\"} ";
            const size_t at = text.find("\n" + line);
            const double there = at == string::npos ? NAN : std::stod(text.substr(at + 1 + line.size()));
            EXPECT(std::fabs(there - value) <= 1e-5 * std::fabs(value), "%s of '%s'", name.c_str(),
                   text.c_str());
        }
    }
}

// A run of one rank and of two: rows of health and histograms where they are due, of the same counts.
TEST(a_run_writes_its_health) {
    std::map<string, ReadHistogram> of_one;
    for (const int ranks : {1, 2}) {
        const string name = ranks == 1 ? "fit" : "fit2";
        const Ran ran = train_gpt(tiny_program_config(
            name, {{"log", {{"tensorboard", true}, {"health", 4}, {"histograms", 5}}},
                   {"parallel", {{"ranks", ranks}, {"transport", "threads"}, {"zero", 3}}}}));
        EXPECT(ran.code == 0, "'%s'", ran.err.c_str());
        vector<int> steps;
        for (const json& row : rows_of(name, "health")) {
            steps.push_back(row["step"]);
            double squares = 0, count = 0;
            for (const json& t : row["tensors"])
                for (const char* kind : {"weight", "grad", "update"})
                    EXPECT(t[kind]["rms"] > 0 && t[kind]["max"] >= t[kind]["rms"] &&
                           t[kind]["nonfinite"] == 0, "%s", t.dump().c_str());
            for (const json& t : row["tensors"]) {
                squares += double(t["count"]) * std::pow(double(t["grad"]["rms"]), 2);
                count += double(t["count"]);
            }
            const json norm = rows_of(name, "train")[size_t(steps.back() - 1)]["norm"];
            EXPECT(std::fabs(std::sqrt(squares) - double(norm)) < 1e-4 * double(norm), "%g of %g",
                   std::sqrt(squares), double(norm));
            EXPECT(count == rows_of(name, "start")[0]["params"] && row["activations"].size() > 8, "%g",
                   count);
        }
        EXPECT((steps == vector<int>{4, 8}), "%zu rows", steps.size());
        EXPECT(rows_of(name, "grad_norms").size() == 2);
        const auto found = read_histograms(folder(name) + "/" + EventFile::kName);
        if (ranks == 1) of_one = found;
        EXPECT(found.contains("5 weights/wte") && found.contains("10 gradients/lnfw") &&
               found.size() == of_one.size(), "%zu histograms", found.size());
        EXPECT(found.at("5 norms/gradients").num == double(rows_of(name, "health")[0]["tensors"].size()));
        for (const auto& [key, h] : found) {
            double inside = 0;
            for (const double n : h.buckets) inside += n;
            EXPECT(inside == h.num && h.num == of_one[key].num, "%s: %g of %g", key.c_str(), inside, h.num);
        }
    }
}

TEST(histograms_need_the_event_file) {
    const Ran ran = train_gpt(tiny_program_config("unfit", {{"log", {{"histograms", 5}}}}));
    EXPECT(ran.code == 78 && ran.err.find("log.histograms = 5 with log.tensorboard = false") != string::npos,
           "code %d, '%s'", ran.code, ran.err.c_str());
}

TEST(metrics_replace_no_file_of_a_run) {
    const string run_dir = folder("own"), mine = folder("mine.prom"), pipe = folder("pipe.prom");
    std::ofstream(mine) << "# mine";
    EXPECT(mkfifo(pipe.c_str(), 0600) == 0, "no pipe");
    for (const string& path : {run_dir + "/metrics.jsonl", run_dir + "/config.json", mine, pipe}) {
        const string config = tiny_program_config("own", {{"log", {{"prometheus", path}}}});
        const Ran ran = run("timeout 20 ./train_gpt " + config);
        EXPECT(ran.code == 78 && ran.err.find(path) != string::npos && no_message(ran.err).empty(),
               "%s: %d '%s'", path.c_str(), ran.code, ran.err.c_str());
    }
    EXPECT(text_of(mine) == "# mine" && !std::filesystem::exists(run_dir), "a file is replaced");
}

TEST(a_file_that_cannot_be_written_stops_nothing) {
    const string config = tiny_program_config("nowhere", {{"log", {{"prometheus", "/nowhere/x.prom"}}}});
    const Ran ran = train_gpt(config);
    const string told = "log.prometheus: cannot write /nowhere/x.prom: no file can be created in the folder "
                        "/nowhere: No such file or directory. Training goes on.";
    EXPECT(ran.code == 0 && ran.err.find(told) != string::npos, "code %d, '%s'", ran.code, ran.err.c_str());
}
