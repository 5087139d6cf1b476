// A checkpoint of an older version: test/data/old_checkpoint/step_4, saved by commit 66396ee of two ranks of
// tensor parallelism, before runs noted whether tasks were scored.
#include <cmath>
#include <filesystem>

#include "llmc/base/sha256.h"
#include "test/program.h"

namespace fs = std::filesystem;
using namespace test;
using std::string, std::vector;

static const string kOld = "test/data/old_checkpoint/step_4";

static string hex_of(const Sha256& sum) {
    string text;
    for (const uint8_t byte : sum) text += fmt::format("{:02x}", byte);
    return text;
}

// The head of a safetensors file, and what follows it.
static std::pair<json, string> parts_of(const string& path) {
    const string bytes = text_of(path);
    uint64_t head = 0;
    if (bytes.size() < sizeof head) return {};
    memcpy(&head, bytes.data(), sizeof head);
    return {json::parse(bytes.substr(8, head), nullptr, false), bytes.substr(8 + head)};
}

// As the older version trained on: losses of steps 5 to 8, and of the validation after steps 6 and 8.
TEST(a_run_goes_on_from_a_checkpoint_of_an_older_version) {
    const vector<double> train = {5.584958668798208, 5.569383177906275, 5.556591760367155, 5.554080422967672},
                         val = {5.557029064212527, 5.548904125179563};
    for (const string ranks : {"2", "1"}) {
        const string name = "old", mesh = " --parallel.ranks=" + ranks + " --parallel.tp=" + ranks;
        fs::remove_all(folder(name));
        fs::create_directories(folder(name));
        fs::copy(kOld, folder(name) + "/step_4");
        const Ran ran = run("./train_gpt " + kOld + "/config.json --run.dir=" + folder(name) + mesh +
                            " --data.tokenizer=" + folder(name) + "/step_4/tokenizer.json");
        EXPECT(ran.code == 0, "%s: code %d, '%s'", mesh.c_str(), ran.code, ran.err.c_str());
        const vector<json> steps = rows_of(name, "train"), checks = rows_of(name, "val");
        EXPECT(steps.size() == train.size() && checks.size() == val.size(), "%s: %zu steps, %zu validations",
               mesh.c_str(), steps.size(), checks.size());
        for (size_t i = 0; i < std::min(steps.size(), train.size()); i++) {
            EXPECT(steps[i]["step"] == 5 + i, "%s", steps[i].dump().c_str());
            EXPECT_NEAR(steps[i]["loss"].get<double>(), train[i], 2e-5);
        }
        for (size_t i = 0; i < std::min(checks.size(), val.size()); i++)
            EXPECT_NEAR(checks[i]["loss"].get<double>(), val[i], 2e-5);
        EXPECT(there(folder(name) + "/step_8/manifest.json"), "%s: no checkpoint", mesh.c_str());
    }
}

// The older version's own export had these bytes behind its head.
TEST(weights_of_an_older_version_are_read_bit_for_bit) {
    const Ran ran = run("./train_gpt " + kOld + "/config.json --run.dir=" + folder("none") +
                        " --model.init=" + kOld + " --export=hf:" + folder("old_hf"));
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const auto [head, tensors] = parts_of(folder("old_hf") + "/model.safetensors");
    EXPECT(head.is_object() && head.contains("transformer.wte.weight"), "%s", head.dump().c_str());
    const string sum = hex_of(sha256(tensors));
    EXPECT(sum == "73ac4e12e963a3a2cc3dd23d1a13d2e9e10e465124816c3378c44add64752250", "%s", sum.c_str());
}

// Tensors and the starts of their pieces, as a checkpoint's files name them: of whole tensors no start.
static void expect_names(const string& folder_of_step) {
    const vector<std::pair<const char*, vector<string>>> files = {
        {"/rank_00000.safetensors",
         {"master.wpe", "master.h.0.ln1w", "master.h.0.qkvw@0,0", "master.h.0.qkvw@16,0",
          "master.h.0.qkvb@32", "m.h.1.attprojw@0,0", "v.h.1.fcw@0,0", "v.lnfb"}},
        {"/rank_00001.safetensors",
         {"master.h.0.qkvw@8,0", "master.h.0.qkvb@40", "master.h.0.attprojw@0,8", "m.h.1.fcw@32,0",
          "v.h.1.fcprojw@0,32"}}};
    for (const auto& [file, names] : files) {
        const json head = parts_of(folder_of_step + file).first;
        for (const string& name : names)
            EXPECT(head.contains(name), "%s%s: no %s", folder_of_step.c_str(), file, name.c_str());
        EXPECT(!head.contains("master.h.0.qkvw"), "%s: a name without the start of the piece", file);
    }
}

TEST(pieces_are_named_after_tensor_and_start) {
    expect_names(kOld);
    const string config = tiny_program_config("pieces", {{"model", {{"channels", 16}}},
                                                         {"train", {{"steps", 1}}},
                                                         {"checkpoint", {{"every", 1}}}});
    const Ran ran = train_gpt(config, "--parallel.ranks=2 --parallel.tp=2 --parallel.transport=threads");
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    expect_names(folder("pieces") + "/step_1");
}
