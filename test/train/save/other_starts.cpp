// ./train_gpt starts again: with other data, another batch, more steps, from a folder by its name.
#include <cmath>
#include <filesystem>
#include <fstream>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/manifest.h"
#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

// Shards in a folder of their own.
static string shards_in(const string& name) {
    const string dir = folder(name);
    fs::create_directories(dir);
    write_shard(dir + "/a_train_0.bin", learnable_ids(9000, 500));
    write_shard(dir + "/a_val_0.bin", learnable_ids(3000, 500, 2));
    return dir;
}

// A run of four steps with a checkpoint after the second, by a constant learning rate.
static string config_on(const string& name, const string& data) {
    const json files = {{"train", data + "/a_train_*.bin"}, {"val", data + "/a_val_*.bin"}};
    return tiny_program_config(name, {{"data", files},
                                      {"train", {{"steps", 4}}},
                                      {"optimizer", {{"schedule", "constant"}, {"warmup", 0}}},
                                      {"eval", {{"every", 2}}},
                                      {"checkpoint", {{"every", 2}, {"keep_last", 0}, {"async", false}}}});
}
static Ran two_steps(const string& config) { return train_gpt(config, "--train.steps=2"); }

static std::vector<double> losses(const string& name) {
    std::vector<double> all;
    for (const json& row : rows_of(name, "train")) all.push_back(row["loss"]);
    return all;
}

TEST(changed_data_is_seen_and_moved_data_is_not_changed) {
    EXPECT(train_gpt(config_on("straight", shards_in("d0"))).code == 0, "straight");
    const std::vector<std::pair<string, std::function<void(const string&)>>> changes = {
        {"data.train", [](auto& d) { write_shard(d + "/a_train_1.bin", learnable_ids(900, 500)); }},
        {"data.train", [](auto& d) { write_shard(d + "/a_train_0.bin", learnable_ids(9000, 500, 7)); }},
        {"data.val", [](auto& d) { write_shard(d + "/a_val_0.bin", learnable_ids(3000, 500, 7)); }}};
    for (size_t i = 0; i < changes.size(); i++) {
        const string name = "changed" + std::to_string(i), data = shards_in("d_" + name);
        const string config = config_on(name, data);
        EXPECT(two_steps(config).code == 0, "first");
        changes[i].second(data);
        const Ran ran = train_gpt(config);
        EXPECT(ran.code == 78 && has(ran.err, changes[i].first + ": other contents") &&
                   has(ran.out, "a_"), "%zu: code %d, '%s'", i, ran.code, ran.err.c_str());
        const Ran allowed = train_gpt(config, "--checkpoint.override='[\"" + changes[i].first + "\"]'");
        EXPECT(allowed.code == 0 && losses(name).size() == 4, "%zu: code %d, '%s'", i, allowed.code,
               allowed.err.c_str());
    }
    EXPECT(two_steps(config_on("moved", shards_in("d8"))).code == 0, "first");
    fs::rename(folder("d8"), folder("d9"));
    const Ran ran = train_gpt(config_on("moved", folder("d9")));
    EXPECT(ran.code == 0 && losses("moved") == losses("straight") && losses("moved").size() == 4,
           "code %d, '%s'", ran.code, ran.err.c_str());
}

// Tokens, epochs and the sum of the header count what was trained.
TEST(tokens_are_those_that_were_trained) {
    const string config = config_on("batch", shards_in("d0"));
    EXPECT(two_steps(config).code == 0, "first");
    const Ran ran = train_gpt(config, "--train.batch_tokens=512 "
                              "--checkpoint.override='[\"train.batch_tokens\"]'");
    std::vector<int> tokens;
    for (const json& row : rows_of("batch", "train")) tokens.push_back(row["tokens"]);
    EXPECT((tokens == std::vector{256, 512, 1024, 1536}), "%zu rows, '%s'", tokens.size(), ran.err.c_str());
    EXPECT(has(ran.out, "4 of 512 tokens") && has(ran.out, "1.54k tokens in all: 0.17 epochs"), "'%s'",
           ran.out.c_str());
}

TEST(a_finished_run_says_so_and_how_to_train_on) {
    const string config = config_on("finished", shards_in("d0"));
    const Ran first = train_gpt(config, "--optimizer.warmup=5");
    EXPECT(first.code == 0 && has(first.err, "optimizer.warmup = 5 is longer than the run of train.steps ="),
           "code %d, '%s'", first.code, first.err.c_str());
    const Ran again = train_gpt(config, "--optimizer.warmup=5");
    EXPECT(again.code == 0 && has(again.out, "complete: all 4 steps were trained before") &&
               has(again.out, "--train.steps=8") && !has(again.out, "done "), "'%s'", again.out.c_str());
}

// The default warmup of 100 steps is no mistake of the user: a row of the header, which says what it does.
TEST(a_run_shorter_than_the_default_warmup) {
    json config = json::parse(read_file(config_on("short", shards_in("d0"))));
    config["optimizer"].erase("warmup");
    write_file(folder("short.json"), config.dump());
    const Ran ran = train_gpt(folder("short.json"));
    EXPECT(ran.code == 0 && has(ran.out, "rate    rises to 4% of optimizer.lr: its warmup has 100 steps") &&
               has(ran.out, "--optimizer.warmup=1 ") && !has(ran.err, "warning"), "'%s' '%s'",
           ran.out.c_str(), ran.err.c_str());
    const Ran two = two_steps(config_on("no_warmup", shards_in("d0")));
    EXPECT(two.code == 0 && !has(two.out, "rate    "), "'%s'", two.out.c_str());
}

// Versions without optimizer.cautious_adamw had cautious decay of all tensors: their runs keep their bits.
TEST(a_cautious_run_of_an_earlier_version_goes_on) {
    const auto config = [](const string& name) {
        json all = json::parse(read_file(config_on(name, shards_in("d0"))));
        all["optimizer"].update({{"kind", "muon"}, {"cautious", true}, {"lr", 1e-2}, {"weight_decay", 1}});
        write_file(folder(name + ".json"), all.dump());
        return folder(name + ".json");
    };
    const string all_cautious = "--optimizer.cautious_adamw=true";
    EXPECT(train_gpt(config("all"), all_cautious).code == 0 && train_gpt(config("muons")).code == 0, "first");
    EXPECT(losses("all").back() != losses("muons").back());
    EXPECT(train_gpt(config("earlier"), all_cautious + " --train.steps=2").code == 0, "two steps");
    const string path = folder("earlier") + "/step_2/manifest.json";
    string error;
    std::optional<Manifest> manifest = parse_manifest(read_file(path), &error);
    EXPECT(manifest.has_value(), "'%s'", error.c_str());
    json settings = json::parse(manifest->config);
    EXPECT(settings["optimizer"].erase("cautious_adamw") == 1);
    manifest->config = settings.dump();
    write_file(path, to_json(*manifest));
    const Ran ran = train_gpt(config("earlier"));
    EXPECT(ran.code == 0 && losses("earlier") == losses("all"), "'%s'", ran.err.c_str());
    EXPECT(has(ran.out, "optimizer.cautious_adamw = true, as the checkpoint was made"), "'%s'",
           ran.out.c_str());
    const json now = json::parse(read_file(folder("earlier") + "/config.json"));
    EXPECT(now["optimizer"]["cautious_adamw"] == true);
}

// The folder of a run, of a checkpoint, a preset; checkpoint.resume likewise.
TEST(folders_and_presets_stand_for_their_configs) {
    const string config = config_on("named", shards_in("d0"));
    EXPECT(train_gpt(config).code == 0, "first");
    const string run_dir = folder("named"), step = run_dir + "/step_2";
    const Ran again = run("./train_gpt " + run_dir + "/");
    EXPECT(again.code == 0 && has(again.out, "complete: all 4 steps"), "'%s' '%s'", again.out.c_str(),
           again.err.c_str());
    const Ran of_step = run("./train_gpt " + step + " --evaluate=loss"), of_run =
        run("./train_gpt " + run_dir + " --evaluate=loss");
    EXPECT(of_step.code == 0 && has(of_step.out, step + " at step 2") && has(of_run.out, "/step_4 at step 4"),
           "'%s' '%s'", of_step.out.c_str(), of_step.err.c_str());
    const Ran back = run("./train_gpt " + step + " --run.dir=" + folder("back") + " --eval.every=0");
    std::vector<double> rest = losses("named");
    rest.erase(rest.begin(), rest.begin() + 2);
    EXPECT(back.code == 0 && rest.size() == 2 && losses("back") == rest,
           "code %d, '%s'", back.code, back.err.c_str());
    const Ran newest = train_gpt(config, "--run.dir=" + folder("newest") + " --checkpoint.resume=" + run_dir +
                                 " --train.steps=5");
    EXPECT(newest.code == 0 && has(newest.out, "goes on from " + run_dir + "/step_4"), "code %d, '%s'",
           newest.code, newest.err.c_str());
    std::filesystem::create_directories(folder("empty"));
    for (const string& path : {folder("absent"), folder("empty"), string()}) {
        const Ran ran = train_gpt(config, "--checkpoint.resume='" + path + "'");
        EXPECT(ran.code == 78 && no_message(ran.err).empty() && has(ran.err, "checkpoint.resume"), "%d '%s'",
               ran.code, ran.err.c_str());
    }
    EXPECT(run("./train_gpt gpt2_124M --plan").code == 0, "a preset");
    const Ran typo = run("./train_gpt gpt2_124 --plan");
    EXPECT(typo.code == 78 && has(typo.err, "gpt2_124M"), "'%s'", typo.err.c_str());
    const Ran other = run("./train_gpt grafan --plan");
    EXPECT(other.code == 78 && !has(other.err, "grafana"), "no preset: '%s'", other.err.c_str());
}

// A validation has the same rows at any batch; --evaluate=loss has all of them.
TEST(validation_does_not_depend_on_the_batch) {
    const string config = config_on("evaluated", shards_in("d0"));
    EXPECT(two_steps(config).code == 0, "first");
    std::vector<double> loss;
    for (const char* batch : {"64", "1024"}) {
        const string name = string("batch") + batch;
        const string weights = " --model.init=" + folder("evaluated") + "/step_2";
        const Ran ran = train_gpt(config_on(name, folder("d0")), "--train.steps=0 --eval.batches=-1 "
                                  "--train.micro_batch=2 --train.batch_tokens=" + string(batch) + weights);
        EXPECT(ran.code == 0 && has(ran.out, "validation 3,000 tokens"), "'%s' '%s'", ran.out.c_str(),
               ran.err.c_str());
        if (ran.code == 0) loss.push_back(rows_of(name, "val").at(0)["loss"]);
    }
    const Ran part = train_gpt(config, "--eval.batches=2");
    EXPECT(has(part.out, "validation 512 of 3,000 tokens"), "'%s'", part.out.c_str());
    const Ran whole = train_gpt(config, "--evaluate=loss --model.init=" + folder("evaluated") + "/step_2");
    const json row = json::parse(text_of(folder("evaluated") + "/evals.jsonl"), nullptr, false);
    EXPECT(whole.code == 0 && loss.size() == 2 && loss[0] == loss[1] && row.is_object(), "'%s' '%s'",
           whole.out.c_str(), whole.err.c_str());
    if (!row.is_object()) return;
    EXPECT_NEAR(row["loss"].get<double>(), loss[0], 1e-5);
    EXPECT_NEAR(row["perplexity"].get<double>(), std::exp(loss[0]), 1e-2);
    EXPECT(row["tokens"] == 2976 && has(whole.out, "perplexity"), "'%s'",
           whole.out.c_str());
}

// The bytes that come in stand before the text, but for a last newline.
TEST(a_text_from_standard_input) {
    const string config = tiny_program_config("prose", text_config());
    EXPECT(train_gpt(config).code == 0, "a run");
    const string most = "./train_gpt " + config + " --sample.tokens=9 --generate=", in = folder("typed");
    const auto read_in = [&](const string& text) {
        std::ofstream(in, std::ios::binary) << text;
        return run(most + "- <" + in);
    };
    const Ran named = run(most + "'the page'");
    for (const char* text : {"the page", "the page\n"}) EXPECT(read_in(text).out == named.out);
    EXPECT(run("{ printf 'the '; sleep 0.2; printf page; } | " + most + "-").out == named.out);
    const Ran empty = run(most + "''");
    EXPECT(read_in("").out == empty.out && run(most + "- <&-").out == empty.out && empty.code == 0);
    string longer = "the page reads ";      // than the context of 32 tokens
    for (int i = 0; i < 9; i++) longer += longer;
    for (const string& text : {string("a\0b", 3), string("\xff\xc3"), longer}) {
        const Ran ran = read_in(text);
        EXPECT(ran.code == 0 && ran.out.starts_with(text) && ran.out.size() > text.size() + 1);
    }
    if (run("script -qec true /dev/null").code != 0) return skip("no script(1)");
    const Ran typed = run("printf 'the page\\n' | timeout 20 script -qec '" + most + "-' /dev/null");
    EXPECT(typed.code == 0 && has(typed.out, "end it with ^D"), "'%s'", typed.out.c_str());
}
