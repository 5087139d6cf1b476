// Runs with text, checkpoints and signals, from outside.
#include <cstring>
#include <filesystem>

#include "test/planned_memory.h"
#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

// Starts a long run, waits for its third step, sends the signal, waits for its end. Prints the exit code.
static Ran signalled(const string& run_name, const string& signal, const string& args) {
    const string config =
        tiny_program_config(run_name, {{"train", {{"steps", 1000000}}}, {"eval", {{"every", 0}}}});
    const string metrics = folder(run_name) + "/metrics.jsonl";
    return run("./train_gpt " + config + " " + args + " & pid=$!\n"
               "i=0; until [ \"$(grep -c train " + metrics + " 2>/dev/null || :)\" -ge 3 ] 2>/dev/null; do\n"
               "  sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || break; done\n" + signal + "\n"
               "wait $pid; echo \"exit code $?\" >&2");
}

// Waits up to 30 s for a folder with a checkpoint.
static string until_saved(const string& run_name) {
    return "i=0; until ls -d " + folder(run_name) +
           "/step_*[0-9] >/dev/null 2>&1; do sleep 0.02; i=$((i+1)); [ $i -lt 1500 ] || break; done\n";
}

static std::vector<string> checkpoints_of(const string& run_name) {
    std::vector<string> names;
    std::error_code none;
    for (const auto& e : fs::directory_iterator(folder(run_name), none))
        if (e.path().filename().string().starts_with("step_")) names.push_back(e.path().filename());
    return names;
}

// The last row, the one checkpoint and its acknowledgement agree on the step.
static void check_saved(const string& run_name, const Ran& ran) {
    EXPECT(has(ran.err, "exit code 75"), "'%s'", ran.err.c_str());
    const auto names = checkpoints_of(run_name);
    const auto steps = steps_of(run_name, "train");
    EXPECT(names.size() == 1 && steps.size() >= 3, "%zu checkpoints, %zu steps", names.size(), steps.size());
    if (names.size() != 1 || steps.empty()) return;
    EXPECT(names[0] == "step_" + std::to_string(steps.back()), "%s after step %d", names[0].c_str(),
           steps.back());
    for (const char* file : {"rank_00000.safetensors", "config.json"})
        EXPECT(there(folder(run_name) + "/" + names[0] + "/" + file), "no %s", file);
    EXPECT(has(text_of(folder(run_name) + "/checkpoints.jsonl"),
               "{\"step\":" + std::to_string(steps.back()) + ","),
           "checkpoints.jsonl");
    EXPECT(rows_of(run_name, "done").empty(), "a run that was stopped is not done");
}

TEST(signals_that_stop) {
    for (const char* name : {"TERM", "INT", "USR2"})
        check_saved(name, signalled(name, string("kill -") + name + " $pid", ""));
}

// SIGUSR1 saves, the steps go on; SIGTERM then ends the run, and keep_last = 1 leaves the later of the two.
TEST(usr1_saves_and_goes_on) {
    const string more = "n=$(grep -c train " + folder("usr1") + "/metrics.jsonl); ";
    const Ran ran = signalled("usr1",
                              "kill -USR1 $pid\n" + until_saved("usr1") + more +
                                  "i=0; until [ $(grep -c train " + folder("usr1") +
                                  "/metrics.jsonl) -gt $((n+2)) ]; do sleep 0.02; "
                                  "i=$((i+1)); [ $i -lt 1500 ] || break; done; kill -TERM $pid",
                              "--checkpoint.keep_last=1");
    check_saved("usr1", ran);
    const string lines = text_of(folder("usr1") + "/checkpoints.jsonl");
    EXPECT(std::count(lines.begin(), lines.end(), '\n') == 2, "'%s'", lines.c_str());
}

TEST(checkpoints_every_so_often) {
    const Ran ran = train_gpt(tiny_program_config("often"),
                              "--checkpoint.every=4 --checkpoint.keep_last=0 --checkpoint.async=false "
                              "--eval.every=0");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    for (int step : {4, 8, 10})
        EXPECT(fs::exists(folder("often") + "/step_" + std::to_string(step)), "no checkpoint of step %d",
               step);
    EXPECT(checkpoints_of("often").size() == 3, "%zu checkpoints", checkpoints_of("often").size());
    string expected;
    for (int step : {4, 8, 10})
        expected += fmt::format("{{\"step\":{},\"dir\":\"{}/step_{}\"}}\n", step, folder("often"), step);
    EXPECT(text_of(folder("often") + "/checkpoints.jsonl") == expected, "'%s'",
           text_of(folder("often") + "/checkpoints.jsonl").c_str());
}

// Makes the first number of a safetensors file NaN.
static void poison(const string& path) {
    const float nan = std::nanf("");
    FILE* f = fopen(path.c_str(), "r+b");
    uint64_t header = 0;
    EXPECT(fread(&header, sizeof header, 1, f) == 1, "no header");
    fseek(f, long(sizeof header + header), SEEK_SET), fwrite(&nan, 4, 1, f), fclose(f);
}

// A run from the last weights of a first run begins at the first run's last loss.
TEST(starting_from_a_checkpoint) {
    train_gpt(tiny_program_config("first"), "--checkpoint.every=100");
    const string init = "--model.init=" + folder("first") + "/step_10";
    const Ran ran = train_gpt(tiny_program_config("second"), "--train.steps=0 " + init);
    const auto last = rows_of("first", "val"), begin = rows_of("second", "val");
    EXPECT(ran.code == 0 && begin.size() == 1 && last.size() == 3, "code %d, '%s'", ran.code,
           ran.err.c_str());
    EXPECT(begin.at(0)["loss"] == last.at(2)["loss"], "%s, but %s", begin.at(0).dump().c_str(),
           last.at(2).dump().c_str());
    const Ran other = train_gpt(tiny_program_config("other_shape"), "--model.channels=32 " + init);
    EXPECT(other.code == 78 && has(other.err, "model.channels = 32") && has(other.err, "64"),
           "code %d, '%s'", other.code, other.err.c_str());
    // a damaged checkpoint is none to start from
    fs::copy(folder("first") + "/step_10", folder("flipped"));
    poison(folder("flipped") + "/rank_00000.safetensors");
    const Ran damaged = train_gpt(tiny_program_config("damaged"), "--model.init=" + folder("flipped"));
    EXPECT(damaged.code == 79 && has(damaged.err, "damaged: rank_00000.safetensors"), "code %d, '%s'",
           damaged.code, damaged.err.c_str());
    // the first weight of a file without hashes is not finite
    const string hf = "hf:" + folder("hf");
    EXPECT(train_gpt(tiny_program_config("first"), "--export=" + hf).code == 0, "export");
    poison(folder("hf") + "/model.safetensors");
    const Ran poisoned = train_gpt(tiny_program_config("poisoned"),
                                   "--model.init=" + hf + " --train.max_skips=0 --eval.every=0");
    EXPECT(poisoned.code == 77 && has(poisoned.err, "'transformer.wte.weight' holds NaN") &&
           rows_of("poisoned", "train").empty(), "code %d, '%s'", poisoned.code, poisoned.err.c_str());
}

// ---------------------------------------------------------------------------------------------------------
// text

TEST(samples_and_bits_per_byte) {
    const string config = tiny_program_config("prose", text_config());
    const Ran ran = train_gpt(config);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT((steps_of("prose", "sample") == std::vector{10, 20}), "samples at other steps");
    for (const json& row : rows_of("prose", "sample")) {
        const string text = row["text"];
        EXPECT(text.starts_with("the small") && text.size() > 20, "'%s'", text.c_str());
    }
    const auto val = rows_of("prose", "val");
    EXPECT(val.size() == 3, "%zu evaluations", val.size());
    for (const json& row : val) {
        const double loss = row["loss"], bits = row.value("bits_per_byte", 0.0);
        EXPECT(bits > 0.3 && bits < loss / std::log(2.0), "%s: a token has one byte or more",
               row.dump().c_str());
    }
    EXPECT(val.at(2)["bits_per_byte"] < val.at(0)["bits_per_byte"], "nothing is learnt");
    EXPECT(there(folder("prose") + "/step_20/tokenizer.json"), "the tokenizer is not in the checkpoint");
    train_gpt(tiny_program_config("prose2", text_config()));
    EXPECT(timeless("prose") == timeless("prose2"), "two runs with samples differ");
}

TEST(text_from_the_newest_checkpoint) {
    const string config = tiny_program_config("prose", text_config());
    if (checkpoints_of("prose").empty()) train_gpt(config);
    // changed keys do not matter, and the tokenizer is the checkpoint's
    const string changed = "--model.layers=7 --train.batch_tokens=7000 --model.context=7 --data.tokenizer=";
    const Ran a = train_gpt(config, "--generate='the page' --sample.tokens=100");
    const Ran b = train_gpt(config, "--generate='the page' --sample.tokens=100 " + changed);
    const Ran c = train_gpt(config, "--generate='the page' --sample.tokens=100 --run.seed=8");
    EXPECT(a.code == 0 && a.out.starts_with("the page") && a.out.size() > 100, "code %d, '%s' '%s'", a.code,
           a.out.c_str(), a.err.c_str());
    EXPECT(b.code == 0 && a.out == b.out, "code %d, '%s' and '%s' '%s'", b.code, a.out.c_str(), b.out.c_str(),
           b.err.c_str());
    EXPECT(c.code == 0 && a.out != c.out, "another seed, the same text");
    EXPECT(train_gpt(config, "--generate=").code == 0, "an empty prompt");
    const auto files = text_of(folder("prose") + "/metrics.jsonl");
    EXPECT(std::count(files.begin(), files.end(), '\n') == 30,
           "--generate writes into run.dir");  // 1 + 20 + 3 + 3 + 2 + 1

    const Ran none = train_gpt(tiny_program_config("empty"), "--generate=Once");
    EXPECT(none.code == 78 && has(none.err, folder("empty")) && has(none.err, "--model.init"),
           "code %d, '%s'", none.code, none.err.c_str());
    EXPECT(!fs::exists(folder("empty")), "--generate makes run.dir");
    fs::create_directories(folder("broken") + "/step_5");
    const Ran broken = train_gpt(tiny_program_config("broken"), "--generate=Once");
    EXPECT(broken.code == 79 && has(broken.err, "step_5") && has(broken.err, "--model.init"), "code %d, '%s'",
           broken.code, broken.err.c_str());
}

// script(1) is a terminal; what follows a prompt may be cut within a character.
TEST(a_terminal_gets_text_without_control_characters) {
    const string config = tiny_program_config("prose", text_config());
    if (checkpoints_of("prose").empty()) train_gpt(config);
    if (run("script -qec true /dev/null").code != 0) return skip("no script(1)");
    std::ofstream(folder("prompt")) << "a \x1b[2J\xc2\x9b page";
    const string command = "./train_gpt " + config + " --sample.tokens=9 --generate=\"$(cat " +
                           folder("prompt") + ")\"";
    const Ran file = run(command), terminal = run("script -qec '" + command + "' /dev/null");
    EXPECT(file.code == 0 && file.out.starts_with("a \x1b[2J\xc2\x9b page"), "code %d, '%s'", file.code,
           file.err.c_str());
    EXPECT(terminal.code == 0 && terminal.out.starts_with("a \uFFFD[2J\uFFFD page") &&
               terminal.out.size() > 20 && !has(terminal.out, "\x1b"), "code %d, '%s'", terminal.code,
           terminal.out.c_str());
}

TEST(text_is_drawn_as_the_settings_say) {
    const string config = tiny_program_config("prose", text_config());
    if (checkpoints_of("prose").empty()) train_gpt(config);
    const auto text = [&](const string& settings) {
        return train_gpt(config, "--generate='the page' --sample.tokens=60 " + settings).out;
    };
    const string greedy = text("--sample.temperature=0"), hot = "--sample.temperature=3 ";
    EXPECT(greedy.size() > 20, "'%s'", greedy.c_str());
    EXPECT(text(hot + "--sample.top_k=1 --sample.top_p=1") == greedy, "one token to choose from");
    EXPECT(text(hot + "--sample.top_k=0 --sample.top_p=1e-6") == greedy, "one token to choose from");
    const string free = text(hot + "--sample.top_k=0 --sample.top_p=1");
    EXPECT(free != greedy && free != text(hot + "--sample.top_k=3 --sample.top_p=1"), "'%s'", free.c_str());
    EXPECT(free != text("--sample.temperature=0.3 --sample.top_k=0 --sample.top_p=1"), "'%s'", free.c_str());
}

// The model has 512 ids, the tokenizer 1500.
TEST(text_by_a_tokenizer_of_another_model) {
    const string config = tiny_program_config("ids", {{"checkpoint", {{"every", 10}}}});
    EXPECT(train_gpt(config).code == 0);
    for (const string& what : {string("--generate=a"), "--export=hf:" + folder("exported")}) {
        const Ran ran = train_gpt(config, what + " --data.tokenizer=test/data/tokenizer/hf.tiktoken");
        EXPECT(ran.code == 78 && has(ran.err, "hf.tiktoken") && has(ran.err, "512") && has(ran.err, "1500"),
               "code %d, '%s' '%s'", ran.code, ran.out.c_str(), ran.err.c_str());
    }
    EXPECT(!fs::exists(folder("exported")), "nothing is written");
}

// More shards than a process may have open at first.
TEST(as_many_shards_as_the_hard_limit_allows) {
    for (int i = 0; i < 60; i++) write_shard(folder(fmt::format("many_{:02}.bin", i)), random_ids(50, 500));
    const string config = tiny_program_config("many"), some = " --data.train='" + folder("many_*.bin") + "'";
    const string start = "./train_gpt " + config + some + " --train.steps=1 --run.dir=" + folder("many");
    const Ran ran = run("ulimit -S -n 40; " + start + "a"), none = run("ulimit -n 40; " + start + "b");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT(none.code == 78 && has(none.err, "ulimit -Hn"), "code %d, '%s'", none.code, none.err.c_str());
}

TEST(evaluating_and_sampling_only) {
    const string config = tiny_program_config("prose", text_config());
    if (checkpoints_of("prose").empty()) train_gpt(config);
    const Ran ran =
        train_gpt(tiny_program_config("look", text_config()),
                  "--train.steps=0 --model.init=" + folder("prose") + "/step_20 --data.train=/nowhere.bin");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    EXPECT((steps_of("look", "val") == std::vector{0} && steps_of("look", "sample") == std::vector{0}),
           "one of each");
    EXPECT(rows_of("look", "val").at(0)["loss"] == rows_of("prose", "val").at(2)["loss"], "%s",
           rows_of("look", "val").at(0).dump().c_str());
    EXPECT(checkpoints_of("look").empty(), "nothing is trained, nothing to save");
}

TEST(shards_of_another_tokenizer_are_refused) {
    const string config = tiny_program_config("hash", text_config());
    run("./tokenize train --vocab=310 --out=" + folder("other.json") + " " + folder("text.txt"));
    const Ran ran = train_gpt(config, "--data.tokenizer=" + folder("other.json"));
    EXPECT(ran.code == 78 && has(ran.err, "text_val_000000.bin") && has(ran.err, "data.tokenizer"),
           "code %d, '%s'", ran.code, ran.err.c_str());
}

// The peak behind mfu is the best that this machine has shown, in the cache of the user.
TEST(a_busy_machine_does_not_lower_the_peak) {
    const string config = tiny_program_config("peak"), cache = folder("peak_cache"),
                 file = cache + "/train_gpt/matmul_rates.json", out = folder("peak");
    std::filesystem::remove_all(cache);
    const auto peak = [&] {
        std::filesystem::remove_all(out);
        const Ran ran = run("XDG_CACHE_HOME=" + cache + " ./train_gpt " + config + " --train.steps=1");
        EXPECT(ran.code == 0, "%d, %s", ran.code, ran.err.c_str());
        return rows_of("peak", "start").at(0).at("peak_tflops").get<double>();
    };
    const double measured = peak();
    json rates = json::parse(std::ifstream(file));
    EXPECT(rates.size() == 1 && rates.front() == measured, "%s", rates.dump().c_str());
    rates.front() = 1e6;
    std::ofstream(file) << rates;
    EXPECT_NEAR(peak(), 1e6, 0);
    std::ofstream(file) << "[";
    EXPECT(peak() < 1e3 && json::parse(std::ifstream(file)).size() == 1, "a damaged file");
}

// Many small tensors, in checkpoints of many pieces, and traces of several ranks.
TEST(small_runs_take_no_more_than_planned) {
    if (kAddressSanitizer) return skip("AddressSanitizer keeps what is freed");
    const struct { const char *name, *args; bool resumes; } cases[] = {
        {"one", "", true},
        {"zero0", "--parallel.ranks=2 --log.trace=[2]", false},
        {"zero1", "--parallel.ranks=2 --parallel.zero=1 --memory.offload=optimizer", true},
        {"zero2", "--parallel.ranks=2 --parallel.zero=2 --checkpoint.async=false", false},
        {"zero3", "--parallel.ranks=2 --parallel.zero=3", true}};
    for (const auto& [name, args, resumes] : cases) {
        const string config = tiny_program_config(
            name, {{"model", {{"layers", 16}, {"channels", 32}}}, {"train", {{"steps", 4}}},
                   {"eval", {{"every", 0}}}, {"checkpoint", {{"every", 3}}}});
        for (const string more : {"", " --train.steps=6 --checkpoint.override='[\"train.steps\"]'"}) {
            if (!more.empty() && !resumes) continue;
            const Ran ran = train_gpt(config, args + more);
            EXPECT(ran.code == 0, "%s%s: code %d, '%s'", args, more.c_str(), ran.code, ran.err.c_str());
            expect_planned(name, args + more, 1e6);
        }
    }
}
