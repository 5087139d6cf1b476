// ./train_gpt as a user sees it: flags and a run's files.
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <regex>

#include "llmc/base/host/machine.h"
#include "llmc/ops/cpu/products/dnnl.h"
#include "test/planned_memory.h"

using namespace test;
using std::string;

// ---------------------------------------------------------------------------------------------------------
// flags

TEST(help_and_version) {
    const Ran help = run("./train_gpt --help");
    EXPECT(help.code == 0 && help.err.empty(), "code %d, '%s'", help.code, help.err.c_str());
    for (const char* key :
         {"run.dir", "model.layers", "train.batch_tokens", "optimizer.lr", "memory.recompute", "log.every"})
        EXPECT(has(help.out, key) || has(help.out, strchr(key, '.') + 1), "--help lacks %s", key);
    const Ran version = run("./train_gpt --version");
    EXPECT(version.code == 0 && !version.out.empty(), "code %d, '%s'", version.code, version.out.c_str());
    const Ran none = run("./train_gpt");
    EXPECT(none.code == 78 && has(none.err, "usage"), "code %d, '%s'", none.code, none.err.c_str());
}

// Bytes of "1.27 MB", to the digits that are printed.
static double bytes_of(const string& number, const string& unit) {
    const std::map<string, double> units = {{"B", 1}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    return std::stod(number) * units.at(unit);
}

// Scripts look for the line `total N MB`; it is the sum of the lines above, each rounded to three digits.
static void expect_total_line(const string& plan) {
    const std::regex line("\n  (\\S[^\n]*?) +([0-9.]+) ([kMGT]?B)(?=\n)");
    double sum = 0, error = 0, total = 0;
    int totals = 0;
    for (std::sregex_iterator m(plan.begin(), plan.end(), line), end; m != end; ++m) {
        const double bytes = bytes_of((*m)[2], (*m)[3]);
        if ((*m)[1] == "total") total = bytes, totals++;
        else sum += bytes, error += 0.005 * bytes;
    }
    EXPECT(totals == 1 && total > 1e6, "%d lines of a total in '%s'", totals, plan.c_str());
    EXPECT_NEAR(sum, total, error + 0.005 * total);
}

TEST(plan_starts_nothing) {
    const Ran plan = train_gpt(tiny_program_config("plan"), "--plan --train.steps=77");
    EXPECT(plan.code == 0, "code %d, '%s'", plan.code, plan.err.c_str());
    for (const char* word : {"weights", "gradients", "total", "\"batch_tokens\": 256", "\"steps\": 77"})
        EXPECT(has(plan.out, word), "no '%s' in the plan", word);
    EXPECT(!std::filesystem::exists(folder("plan")), "run.dir is made");
    expect_total_line(plan.out);
    const string config = plan.out.substr(plan.out.find('{'));
    EXPECT(json::parse(config, nullptr, false).is_object(), "what follows the plan is not the config");
}

// A model of 175 billion parameters on any machine.
TEST(plan_takes_no_memory) {
    if (kAddressSanitizer) return skip("AddressSanitizer reserves terabytes of addresses");
    const Ran plan =
        run("(ulimit -v 4000000; ./train_gpt scripts/gpt3_175B.json --plan --model.vocab=50257)");
    EXPECT(plan.code == 0 && has(plan.out, "174,") && has(plan.out, "TB"), "code %d, '%s' '%s'", plan.code,
           plan.out.substr(0, 100).c_str(), plan.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// a run

static void check_train_rows(const std::vector<json>& rows) {
    for (size_t i = 0; i < rows.size(); i++) {
        const json& row = rows[i];
        for (const char* key : {"step", "loss", "norm", "lr", "tokens", "ms", "tokens_per_s", "mfu"})
            EXPECT(row.contains(key) && row[key].is_number(), "row %zu has no number %s: %s", i, key,
                   row.dump().c_str());
        EXPECT(row["step"] == i + 1 && row["tokens"] == 256 * (i + 1), "row %zu: %s", i, row.dump().c_str());
        EXPECT(row["norm"] > 0 && !row.contains("skipped"), "row %zu: %s", i, row.dump().c_str());
    }
    EXPECT_NEAR(rows.at(0)["lr"].get<double>(), 0.5e-3, 1e-12);
    EXPECT_NEAR(rows.at(1)["lr"].get<double>(), 1e-3, 1e-12);
}

TEST(a_run_and_its_files) {
    const Ran ran = train_gpt(tiny_program_config("whole"));
    EXPECT(ran.code == 0 && ran.err.empty(), "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(!has(ran.out + ran.err, "\x1b") && !has(ran.out, "\r"), "escape codes, and stdout is no terminal");
    const auto rows = rows_of("whole");
    EXPECT(rows.size() == 18, "%zu rows: 1 start, 10 train, 3 val, 3 memory, 1 done", rows.size());
    const json start = rows.at(0), done = rows.back();
    EXPECT(start["event"] == "start" && done["event"] == "done" && done["step"] == 10, "'%s'",
           done.dump().c_str());
    const int params = 512 * 64 + 32 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64;
    EXPECT(start["params"] == params && start["world"] == 1, "%s", start.dump().c_str());
    EXPECT(start["plan_bytes"] > 0 && done["peak_bytes"] > 0 && has(start["device"], "cpu"), "%s",
           start.dump().c_str());

    check_train_rows(rows_of("whole", "train"));
    EXPECT((steps_of("whole", "val") == std::vector{0, 5, 10}), "validated at other steps");
    const auto val = rows_of("whole", "val");
    EXPECT_NEAR(val.at(0)["loss"].get<double>(), std::log(512.0), 0.1);
    EXPECT(val.at(2)["loss"] < val.at(0)["loss"] && !val.at(0).contains("bits_per_byte"), "%s",
           val.at(2).dump().c_str());
    const json config = json::parse(text_of(folder("whole") + "/config.json"), nullptr, false);
    EXPECT(config.is_object() && config["train"]["steps"] == 10 && config["log"]["every"] == 1,
           "config.json");
    EXPECT(!there(folder("whole") + "/checkpoints.jsonl"), "checkpoint.every = 0 saves nothing");
    std::set<string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder("whole")))
        files.insert(entry.path().filename());
    EXPECT(files == std::set<string>({"config.json", "metrics.jsonl", "train_gpt.lock"}), "%zu files",
           files.size());
}

TEST(the_same_bytes_twice) {
    train_gpt(tiny_program_config("a"));
    train_gpt(tiny_program_config("b"), "--run.threads=2");
    EXPECT(timeless("a").size() > 1000, "%zu bytes", timeless("a").size());
    train_gpt(tiny_program_config("c"));
    EXPECT(timeless("a") == timeless("c"), "two runs differ");
    const auto one = rows_of("a", "train"), two = rows_of("b", "train");
    for (size_t i = 0; i < one.size() && two.size() == one.size(); i++)
        EXPECT_NEAR(one[i]["loss"].get<double>() / two[i]["loss"].get<double>(), 1, 1e-6);
    EXPECT(one.size() == 10 && two.size() == 10, "%zu and %zu steps", one.size(), two.size());
}

TEST(memory_is_as_planned) {
    if (kAddressSanitizer) return skip("AddressSanitizer keeps what is freed");
    const string config = tiny_program_config(
        "memory", {{"model", {{"layers", 4}, {"heads", 4}, {"channels", 256}, {"context", 256}}},
                   {"train", {{"steps", 2}, {"batch_tokens", 2048}, {"micro_batch", 8}}},
                   {"eval", {{"batches", 1}}}});
    // Muon multiplies columns of wider matrices: oneDNN generates other code for these.
    for (const string args : {"--run.threads=2", "--run.threads=1 --optimizer.kind=muon --run.precision=fp32 "
                                                 "--model.layers=2 --model.channels=512"}) {
        const string dir = folder("memory_" + std::to_string(args.size()));
        const Ran ran = train_gpt(config, args + " --run.dir=" + dir);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        expect_planned("memory_" + std::to_string(args.size()), args, 90e6);
    }
}

// With text, as in a quickstart: evaluations with a last batch of fewer rows, samples, checkpoints.
TEST(memory_of_a_run_with_text_is_as_planned) {
    if (kAddressSanitizer) return skip("AddressSanitizer keeps what is freed");
    json changes = text_config();
    changes.merge_patch(
        {{"model", {{"layers", 4}, {"heads", 4}, {"channels", 256}, {"context", 128}}},
         {"train", {{"steps", 6}, {"batch_tokens", 2048}, {"micro_batch", 16}}},
         {"eval", {{"every", 3}}}, {"sample", {{"every", 3}}}, {"checkpoint", {{"every", 3}}}});
    for (const char* precision : {"fp32", "bf16"}) {
        const string name = string("text_memory_") + precision;
        const Ran ran = train_gpt(tiny_program_config(name, changes),
                                  string("--run.threads=2 --run.precision=") + precision);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        expect_planned(name, precision, 90e6);
    }
    const Ran resumed = train_gpt(tiny_program_config("text_memory_bf16", changes), "--run.threads=2 "
                                  "--run.precision=bf16 --train.steps=7 "
                                  "--checkpoint.override='[\"train.steps\"]'");
    EXPECT(resumed.code == 0, "code %d, '%s'", resumed.code, resumed.err.c_str());
    expect_planned("text_memory_bf16", "resumed", 90e6);
}

static string bytes_of_weights(const string& run_name) {
    return text_of(folder(run_name) + "/step_10/rank_00000.safetensors");
}

// Threads share the work alike each time: the same metrics and the same weights, byte for byte.
TEST(two_threads_the_same_bytes_twice) {
    for (const char* name : {"threads_a", "threads_b"})
        train_gpt(tiny_program_config(name), "--run.threads=2 --checkpoint.every=10");
    EXPECT(timeless("threads_a").size() > 1000 && timeless("threads_a") == timeless("threads_b"),
           "two runs differ");
    const string a = bytes_of_weights("threads_a");
    EXPECT(a.size() > 500000 && a == bytes_of_weights("threads_b"), "weights differ, of %zu bytes", a.size());
}

TEST(one_shard_or_seven) {
    train_gpt(tiny_program_config("one"), "--checkpoint.every=10");
    const std::vector<int32_t> ids = learnable_ids(21000, 500);     // as tiny_program_config() has them
    for (size_t i = 0, at = 0; i < 7; i++) {
        const size_t end = i == 6 ? ids.size() : at + 37 + 900 * i;
        write_shard(folder("seven_" + std::to_string(i) + ".bin"),
                    {ids.begin() + std::ptrdiff_t(at), ids.begin() + std::ptrdiff_t(end)});
        at = end;
    }
    const Ran ran = train_gpt(tiny_program_config("seven"), "--checkpoint.every=10 --data.train='" +
                              folder("seven_*.bin") + "'");
    EXPECT(ran.code == 0 && has(ran.out, "7 shards"), "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(timeless("one").size() > 1000 && timeless("one") == timeless("seven"), "the runs differ");
    EXPECT(bytes_of_weights("one") == bytes_of_weights("seven"), "weights differ");
}

// config.json has the decided value of every open setting.
TEST(config_json_is_resolved) {
    const Ran ran = train_gpt(tiny_program_config("resolved"), "--run.precision=auto --run.threads=0 "
                              "--train.micro_batch=0 --sample.every=5 --train.steps=1");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const json run = json::parse(text_of(folder("resolved") + "/config.json"))["run"];
    const json start = rows_of("resolved", "start").at(0);
    EXPECT(run["precision"] == (bf16_is_fast() ? "bf16" : "fp32") && start["precision"] == run["precision"],
           "%s", run.dump().c_str());
    EXPECT(run["threads"] == cores() && start["threads"] == cores(), "%s", run.dump().c_str());
    EXPECT(has(text_of(folder("resolved") + "/config.json"), "\"micro_batch\": 8"), "micro_batch");
    EXPECT(has(ran.out, "samples none") && has(ran.out, "data.tokenizer"), "'%s'", ran.out.c_str());
}

// head closes the pipe before the program has printed everything.
TEST(a_reader_that_goes_away_is_no_error) {
    for (const string& what : {string("--help"), tiny_program_config("unread") + " --plan"}) {
        const Ran ran = run("{ sleep 0.05; ./train_gpt " + what + "; echo \"code $?\" >&2; } | true");
        EXPECT(ran.err == "code 0\n", "%s: '%s'", what.c_str(), ran.err.c_str());
    }
}

TEST(a_full_disk_under_stdout_is_an_error) {
    const string cfg = tiny_program_config("full_stdout");
    for (const string& what : {string("./train_gpt --help"), string("./train_gpt --version"),
                               "./train_gpt " + cfg + " --plan", string("./tokenize --help")}) {
        const Ran ran = run(what + " > /dev/full");
        EXPECT(ran.code == 78 && has(ran.err, "stdout: cannot be written"), "%s: %d '%s'",
               what.c_str(), ran.code, ran.err.c_str());
    }
}

TEST(one_thing_at_a_time) {
    const string cfg = tiny_program_config("one_thing");
    for (const char* both : {"--plan --generate=x", "--generate=x --export=hf:x", "--export=hf:x --plan"}) {
        const Ran ran = train_gpt(cfg, both);
        EXPECT(ran.code == 78 && has(ran.err, "one of --plan") && has(ran.err, "--report and --explore"),
               "%s: %d '%s'", both, ran.code, ran.err.c_str());
    }
    const string pipe = folder("train.bin");
    mkfifo(pipe.c_str(), 0600);
    const Ran ran = run("timeout 20 ./train_gpt " + cfg + " --data.train=" + pipe);
    EXPECT(ran.code == 78 && has(ran.err, "expected a file"), "%d '%s'", ran.code, ran.err.c_str());
}

TEST(zero_turns_things_off) {
    const Ran ran =
        train_gpt(tiny_program_config("off"), "--eval.every=0 --log.every=0 --data.val=/nowhere.bin");
    EXPECT(ran.code == 0 && rows_of("off", "train").size() == 10 && rows_of("off", "val").empty(),
           "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(!has(ran.out, "10/10"), "log.every = 0 prints steps");
    const Ran some = train_gpt(tiny_program_config("some"), "--log.every=4");
    for (int step = 1; step <= 10; step++) {
        const bool shown = step == 4 || step == 8 || step == 10;
        EXPECT(has(some.out, " " + std::to_string(step) + "/10 ") == shown, "step %d of '%s'", step,
               some.out.c_str());
    }
    const Ran none = train_gpt(tiny_program_config("evaluate"), "--train.steps=0 --data.train=/nowhere.bin");
    EXPECT(none.code == 0 && rows_of("evaluate", "train").empty(), "code %d, '%s'", none.code,
           none.err.c_str());
    EXPECT((steps_of("evaluate", "val") == std::vector{0}), "train.steps = 0 evaluates once");
}

// Learning rates that drive the weights to infinity: later steps are skipped and counted.
TEST(not_finite_ends_with_77) {
    const string wild =
        "--optimizer.warmup=0 --optimizer.lr=10 --optimizer.weight_decay=10 --optimizer.schedule=constant "
        "--eval.every=0 "
        "--train.steps=200 --train.max_skips=3 --optimizer.grad_clip=0";
    const Ran ran = train_gpt(tiny_program_config("wild"), wild);
    EXPECT(ran.code == 77 && has(ran.err, "train.max_skips = 3") && has(ran.err, "optimizer.lr"),
           "code %d, '%s'", ran.code, ran.err.c_str());
    const auto rows = rows_of("wild", "train");
    EXPECT(rows.size() > 4, "%zu steps", rows.size());
    int skipped = 0;
    for (size_t i = 0; i < rows.size(); i++) {
        EXPECT(rows[i]["step"] == i + 1 && rows[i]["tokens"] == 256 * (i + 1), "a skipped step counts: %s",
               rows[i].dump().c_str());
        skipped += rows[i].value("skipped", false);
    }
    EXPECT(skipped == 4 && rows.back()["skipped"] == true, "%d steps skipped, 4 expected", skipped);
}
