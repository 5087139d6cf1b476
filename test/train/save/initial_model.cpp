// Initial weights: random weights saved as step_0, of model.init, of a checkpoint.
#include <cstring>

#include "test/program.h"

using namespace test;
using std::string;

static string weights_of(const string& run_name, int step) {
    return text_of(folder(run_name) + "/step_" + std::to_string(step) + "/rank_00000.safetensors");
}

static int version_of(const string& llmc) {
    int32_t header[2] = {};
    memcpy(header, text_of(llmc).substr(0, sizeof header).data(), sizeof header);
    return header[1];
}

// train.steps=0 with checkpoints saves the initial weights. Training from these weights, on any mesh, equals
// training from the start.
TEST(the_initial_model_is_saved) {
    for (const string precision : {"fp32", "bf16"}) {
        const string straight = "straight_" + precision, two = "two_" + precision;
        const string args = "--checkpoint.every=10 --run.precision=" + precision;
        const Ran whole = train_gpt(tiny_program_config(straight), args);
        const string config = tiny_program_config(two);
        const Ran first = train_gpt(config, args + " --train.steps=0");
        EXPECT(whole.code == 0 && first.code == 0 && has(first.out, two + "/step_0\n"), "'%s' '%s'",
               first.out.c_str(), first.err.c_str());
        const Ran exported = train_gpt(config, "--export=hf:" + folder(two + "_hf"));
        EXPECT(exported.code == 0, "'%s'", exported.err.c_str());
        const Ran evaluated = train_gpt(config, args + " --train.steps=0");      // of step_0, changes nothing
        EXPECT(evaluated.code == 0 && has(evaluated.out, "goes on from"), "'%s'", evaluated.err.c_str());
        const Ran then = train_gpt(config, args);
        EXPECT(then.code == 0, "'%s'", then.err.c_str());
        EXPECT(weights_of(two, 10).size() > 100000 && weights_of(two, 10) == weights_of(straight, 10),
               "%s: other weights", precision.c_str());
        EXPECT(steps_of(two, "train").size() == 10 && steps_of(two, "val") == std::vector({0, 5, 10}),
               "%s: other rows", precision.c_str());
    }
    const Ran none = train_gpt(tiny_program_config("unsaved"), "--train.steps=0");
    EXPECT(none.code == 0 && !there(folder("unsaved") + "/step_0/manifest.json"), "checkpoint.every = 0");
    const Ran imported = train_gpt(tiny_program_config("imported", {{"model", {{"vocab", 0}}}}),
                                   "--train.steps=0 --checkpoint.every=5 --model.init=hf:" +
                                   folder("two_fp32_hf"));
    EXPECT(imported.code == 0 && !there(folder("imported") + "/step_0/manifest.json"), "'%s'",
           imported.err.c_str());
}

TEST(ranks_save_the_initial_model) {
    const string config = tiny_program_config("ranks", {{"parallel", {{"ranks", 2}, {"zero", 3}}}});
    const string args = "--checkpoint.every=10 --run.precision=bf16";
    const Ran first = train_gpt(config, args + " --train.steps=0");
    const Ran then = train_gpt(config, args);
    const Ran whole = train_gpt(tiny_program_config("ranks_straight",
                                                    {{"parallel", {{"ranks", 2}, {"zero", 3}}}}), args);
    EXPECT(first.code == 0 && then.code == 0 && whole.code == 0, "'%s' '%s'", first.err.c_str(),
           then.err.c_str());
    EXPECT(weights_of("ranks", 10) == weights_of("ranks_straight", 10), "other weights");
}

TEST(model_init_where_a_run_goes_on) {
    const string config = tiny_program_config("goes_on", {{"checkpoint", {{"every", 10}}}});
    const string hf = folder("goes_on_hf"), other = hf + "_2";
    EXPECT(train_gpt(config).code == 0 && train_gpt(config, "--export=hf:" + hf).code == 0, "a run");
    const Ran noted = train_gpt(config, "--model.init=hf:" + hf);
    EXPECT(noted.code == 0 && has(noted.out, "model.init = 'hf:" + hf + "' is not read") &&
           has(noted.out, "goes_on/step_10"), "'%s' '%s'", noted.out.c_str(), noted.err.c_str());
    EXPECT(!has(train_gpt(config).out, "model.init"), "nothing to say");
    for (const string bad : {"nonsense", "hf:/nowhere", "llmc:/nowhere", "gguf:/nowhere", "onnx:/nowhere"}) {
        const Ran ran = train_gpt(config, "--model.init=" + bad);
        EXPECT(ran.code == 78 && has(ran.err, bad.substr(bad.find(':') + 1)), "%s: code %d, '%s'",
               bad.c_str(), ran.code, ran.err.c_str());
    }
    // what a run began with may be gone later
    const string fine = tiny_program_config("fine", {{"checkpoint", {{"every", 5}}},
                                                     {"train", {{"steps", 5}}}});
    const string from = "--model.init=hf:" + other + " --optimizer.schedule=constant";
    EXPECT(run("cp -r " + hf + " " + other).code == 0 && train_gpt(fine, from).code == 0, "a run");
    EXPECT(run("rm -r " + other).code == 0, "rm");
    const Ran later = train_gpt(fine, from + " --train.steps=8");
    EXPECT(later.code == 0 && has(later.out, "is not read"), "'%s' '%s'", later.out.c_str(),
           later.err.c_str());
    EXPECT(has(text_of(folder("fine") + "/config.json"), "hf:" + other), "config.json");
}

// run.precision=auto may resolve to bf16, but does not name bf16.
TEST(llmc_version_5_has_to_be_named) {
    const string config = tiny_program_config("versions", {{"checkpoint", {{"every", 10}}}});
    EXPECT(train_gpt(config).code == 0, "a run");
    for (const auto& [precision, version] :
         std::vector<std::pair<string, int>>{{"auto", 3}, {"fp32", 3}, {"bf16", 5}}) {
        const string file = folder("m_" + precision + ".bin");
        const Ran ran = train_gpt(config, "--export=llmc:" + file + " --run.precision=" + precision);
        EXPECT(ran.code == 0 && version_of(file) == version, "%s: version %d, '%s'", precision.c_str(),
               version_of(file), ran.err.c_str());
    }
}

// ---------------------------------------------------------------------------------------------------------

TEST(the_start_says_how_many_epochs) {
    // 21000 tokens are 656 rows of 32; a step takes 8
    const Ran few = train_gpt(tiny_program_config("few"), "--train.steps=164 --eval.every=0 --log.every=0");
    EXPECT(few.code == 0 && has(few.out, ": 2 epochs\n"), "'%s'",
           few.out.c_str());
    EXPECT(!has(few.err, "warning"), "'%s'", few.err.c_str());
    const Ran many = train_gpt(tiny_program_config("many"), "--train.steps=410 --eval.every=0 --log.every=0");
    EXPECT(many.code == 0 && has(many.out, ": 5 epochs\n"), "'%s'", many.out.c_str());
    EXPECT(has(many.err, "warning") && has(many.err, "t_train.bin") && has(many.err, " 5 times over") &&
           has(many.err, "train.steps"), "'%s'", many.err.c_str());

    const string config = tiny_program_config("corpora");
    write_shard(folder("small.bin"), learnable_ids(1025, 500));             // 32 rows
    const json train = {{{"path", folder("t_train.bin")}, {"weight", 3}}, {{"path", folder("small.bin")}}};
    const Ran two = train_gpt(config, "--train.steps=82 --eval.every=0 --log.every=0 --data.train='" +
                              train.dump() + "'");
    EXPECT(two.code == 0 && has(two.out, ": 0.75 epochs of " + folder("t_train.bin") + ", 5.12 of " +
                                folder("small.bin") + "\n"), "'%s'", two.out.c_str());
    EXPECT(has(two.err, "small.bin") && !has(two.err, "t_train.bin"), "'%s'", two.err.c_str());
}
