// Bad files: pipes in the place of files, too large texts, contradictory manifests. The program names each
// file and waits for no pipe.
#include <sys/stat.h>

#include <filesystem>
#include <tuple>

#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/manifest.h"
#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string;

// A copy of a run of 4 steps with checkpoints at 2 and 4.
static string copy_of_run(const string& name) {
    static const string config = [] {
        const string c = tiny_program_config("four", {{"train", {{"steps", 4}}}, {"eval", {{"every", 0}}},
                                                      {"checkpoint", {{"every", 2}}}});
        const Ran ran = train_gpt(c);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        return c;
    }();
    fs::copy(folder("four"), folder(name), fs::copy_options::recursive);
    return config;
}

static Ran go_on(const string& config, const string& name, const string& args = "") {
    return run("timeout 60 ./train_gpt " + config + " --run.dir=" + folder(name) + " --train.steps=6 "
               "--checkpoint.override='[\"train.steps\"]' " + args);
}

static const std::vector<int> kSix = {1, 2, 3, 4, 5, 6};

TEST(pipes_in_the_place_of_files) {
    for (const char* name : {"metrics.jsonl", "checkpoints.jsonl", "config.json", "kernels.txt"}) {
        const string run_name = string("pipe_") + name, config = copy_of_run(run_name);
        const string pipe = folder(run_name) + "/" + name;
        fs::remove(pipe);
        mkfifo(pipe.c_str(), 0600);
        const Ran ran = go_on(config, run_name);
        EXPECT(ran.code == 78 && has(ran.err, pipe), "code %d, '%s'", ran.code, ran.err.c_str());
    }
    // a checkpoint with one is damaged
    for (const char* name : {"manifest.json", "rank_00000.safetensors"}) {
        const string run_name = string("pipe_") + name, config = copy_of_run(run_name);
        const string pipe = folder(run_name) + "/step_4/" + name;
        fs::remove(pipe);
        mkfifo(pipe.c_str(), 0600);
        const Ran ran = go_on(config, run_name);
        EXPECT(ran.code == 0 && has(ran.err, string(name) + ": it is a pipe") &&
               steps_of(run_name, "train") == kSix, "code %d, '%s'", ran.code, ran.err.c_str());
    }
}

TEST(pipes_in_the_place_of_models_and_tokenizers) {
    const string pipe = folder("model.pipe"), config = tiny_program_config("from_pipe");
    const string tokenizer = folder("tokenizer_pipe.json"), hf = folder("hf_pipe");
    fs::create_directories(hf);
    for (const string& path : {pipe, tokenizer, hf + "/config.json", hf + "/model.safetensors"})
        mkfifo(path.c_str(), 0600);
    const auto refused = [&](const string& args, const string& named) {
        const Ran ran = run("timeout 60 ./train_gpt " + config + " " + args);
        EXPECT(ran.code == 78 && has(ran.err, named) && has(ran.err, "expected a file"), "%s: code %d, '%s'",
               args.c_str(), ran.code, ran.err.c_str());
    };
    refused("--model.init=llmc:" + pipe, pipe);
    refused("--model.init=hf:" + hf, "config.json");
    refused("--data.tokenizer=" + tokenizer, tokenizer);
    refused("--data.train=" + pipe, pipe);
    refused("--data.train=/dev/zero", "/dev/zero");
}

// The settings may come from a pipe; the program names a pipe without a writer while waiting.
TEST(settings_from_a_pipe) {
    const string config = tiny_program_config("piped"), pipe = folder("settings.pipe");
    const Ran ran = run("bash -c './train_gpt <(cat " + config + ") --plan'");
    EXPECT(ran.code == 0 && has(ran.out, "memory plan"), "code %d, '%s'", ran.code, ran.err.c_str());
    mkfifo(pipe.c_str(), 0600);
    const string said = folder("waits.txt");
    const Ran waits = run("./train_gpt " + pipe + " --plan 2>" + said + " & for i in $(seq 600); do grep -q "
                          "settings.pipe " + said + " && break; sleep 0.1; done; timeout 20 cat " + config +
                          " >" + pipe + "; wait $!");
    EXPECT(has(text_of(said), "waiting for input from " + pipe), "the pipe is not named");
    EXPECT(waits.code == 0 && has(waits.out, "memory plan"), "code %d, '%s'", waits.code, waits.out.c_str());
}

TEST(texts_that_are_too_large_are_not_read) {
    const string name = "large", config = copy_of_run(name);
    fs::resize_file(folder(name) + "/step_4/manifest.json", uint64_t(6) << 30);
    const Ran ran = go_on(config, name);
    EXPECT(ran.code == 0 && has(ran.err, "step_4/manifest.json: File too large") &&
           steps_of(name, "train") == kSix, "code %d, '%s'", ran.code, ran.err.c_str());
    const string tokenizer = folder("large.json");
    write_file(tokenizer, "{");
    fs::resize_file(tokenizer, uint64_t(6) << 30);
    const Ran other = train_gpt(tiny_program_config("large2"), "--data.tokenizer=" + tokenizer);
    EXPECT(other.code == 78 && has(other.err, tokenizer), "code %d, '%s'", other.code, other.err.c_str());
}

// Changes a checkpoint's manifest, whose hash is right again.
static void forge(const string& folder, const string& from, const string& to) {
    string text = text_of(folder + "/manifest.json");
    const size_t at = text.find(from);
    CHECK(at != text.npos, "no {} in the manifest", from);
    text.replace(at, from.size(), to);
    write_file(folder + "/manifest.json", with_hash(text.substr(0, text.rfind("\"xxh3\":"))));
}

// An impossible shape is refused before any computation.
TEST(shapes_that_are_none) {
    const string base = "shape_base", config = copy_of_run(base), hf = folder("shape_hf");
    EXPECT(train_gpt(config, "--run.dir=" + folder(base) + " --export=hf:" + hf).code == 0, "export");
    const string good = text_of(hf + "/config.json");
    for (const auto& [key, was, now] : std::vector<std::tuple<string, int, int>>{
             {"n_head", 2, 3}, {"n_head", 2, 65}, {"n_layer", 2, 3}, {"n_layer", 2, 1 << 24},
             {"n_embd", 64, 1 << 20}, {"n_embd", 64, 1 << 24}, {"n_positions", 32, 1 << 24},
             {"n_positions", 32, (1 << 24) + 1},
             {"vocab_size", 512, 1 << 24}, {"vocab_size", 512, 0}}) {
        string text = good;
        const string from = "\"" + key + "\": " + std::to_string(was);
        CHECK(text.find(from) != text.npos, "no {} in '{}'", from, text);
        text.replace(text.find(from), from.size(), "\"" + key + "\": " + std::to_string(now));
        write_file(hf + "/config.json", text);
        const Ran ran = train_gpt(config, "--model.init=hf:" + hf + " --export=llmc:" + folder("shape.bin"));
        EXPECT(ran.code == 78 && (has(ran.err, key) || has(ran.err, "tensor")) && has(ran.err, hf),
               "%s = %d: code %d, '%s'", key.c_str(), now, ran.code, ran.err.c_str());
    }
    int count = 0;
    for (const auto& [key, was, now] : std::vector<std::tuple<string, int, int>>{
             {"heads", 2, 65}, {"heads", 2, 3}, {"layers", 2, 1024}, {"layers", 2, 1}, {"layers", 2, 1 << 24},
             {"channels", 64, 1 << 20}, {"context", 32, 1 << 24}, {"vocab", 512, 1 << 24}}) {
        const string name = "shape" + std::to_string(count++);
        copy_of_run(name);
        forge(folder(name) + "/step_4", "\"" + key + "\": " + std::to_string(was),
              "\"" + key + "\": " + std::to_string(now));
        const string program = key == "heads" ? " --export=llmc:" + folder("shape.bin") : " --generate=x";
        const Ran ran = train_gpt(config, "--run.dir=" + folder(name) + program);
        EXPECT(ran.code == (now == 1 << 24 && key == "layers" ? 78 : 79) && has(ran.err, "manifest.json") &&
               has(ran.err, key), "%s = %d: code %d, '%s'", key.c_str(), now, ran.code, ran.err.c_str());
        EXPECT(there(folder(name) + "/step_4/manifest.json"), "it is moved");
    }
}

TEST(a_state_that_contradicts_its_manifest) {
    int count = 0;
    for (const auto& [from, to] : std::vector<std::pair<string, string>>{
             {"\"state\":{\"step\":4", "\"state\":{\"step\":3"}, {"\"sample\":", "\"sample\":-"},
             {"\n\"step\":4", "\n\"step\":5"}, {"\"skipped\":0", "\"skipped\":-1"}}) {
        const string name = "state" + std::to_string(count++), config = copy_of_run(name);
        forge(folder(name) + "/step_4", from, to);
        const Ran shown = train_gpt(config, "--run.dir=" + folder(name) + " --export=llmc:" + folder("x"));
        EXPECT(shown.code == 0 && has(shown.err, "step_4/manifest.json") && has(shown.out, "step_2"),
               "%s: code %d, '%s'", to.c_str(), shown.code, shown.err.c_str());
        const Ran ran = go_on(config, name);
        EXPECT(ran.code == 0 && has(ran.err, "step_4/manifest.json") && has(ran.out, "step_2") &&
               there(folder(name) + "/step_4.damaged/manifest.json") && steps_of(name, "train") == kSix,
               "%s: code %d, '%s'", to.c_str(), ran.code, ran.err.c_str());
    }
}
