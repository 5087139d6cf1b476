// Models that are no GPT-2, as users train them: they resume as their own kind, and go to formats that hold
// the kind.
#include "llmc/train/save/formats/formats.h"
#include "test/program.h"

using namespace test;

// A run of 4 steps with a checkpoint after 2 and 4, made once.
static const std::string& trained() {
    static const std::string config = [] {
        const std::string c = tiny_program_config(
            "rms", {{"model", {{"norm", "rmsnorm"}, {"norm_eps", 1e-6}, {"bias", false}}},
                    {"train", {{"steps", 4}}}, {"checkpoint", {{"every", 2}, {"keep_last", 0}}}});
        const Ran ran = train_gpt(c);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        EXPECT(has(ran.out, "\nexports: none, because ") &&
               has(ran.out, " comes nearest, and has model."), "'%s'", ran.out.c_str());
        return c;
    }();
    return config;
}

TEST(no_format_of_gpt2_holds_another_kind) {
    for (const std::string& to : std::vector<std::string>{"hf:" + folder("hf"), "gguf:" + folder("x.gguf"),
                                                          "llmc:" + folder("x.bin")}) {
        const Ran ran = train_gpt(trained(), "--export=" + to);
        EXPECT(ran.code == 78 && has(ran.err, "has model.norm = \"layernorm\", not \"rmsnorm\"") &&
               no_message(ran.err).empty(), "%s: code %d, '%s'", to.c_str(), ran.code, ran.err.c_str());
    }
}

// README.md's for a text of one's own.
TEST(the_small_preset_exports) {
    ModelConfig m = load_config("scripts/small/llama.json").model;
    m.vocab = 500;
    EXPECT(exports_of(m) == "hf, gguf", "'%s'", exports_of(m).c_str());
}

TEST(a_checkpoint_goes_on_as_its_own_kind_only) {
    const std::string from = folder("rms") + "/step_2";
    const auto again = [&](const std::string& args) {
        return train_gpt(trained(), "--run.dir=" + folder("again") + " --checkpoint.resume=" + from + args);
    };
    const Ran same = again("");
    EXPECT(same.code == 0, "code %d, '%s'", same.code, same.err.c_str());
    const auto straight = rows_of("rms", "train"), resumed = rows_of("again", "train");
    EXPECT(straight.size() == 4 && resumed.size() >= 2, "%zu and %zu rows", straight.size(), resumed.size());
    EXPECT(straight.back()["loss"] == resumed.back()["loss"], "the last losses differ");
    const std::pair<const char*, const char*> changes[] = {
        {"model.norm", "layernorm"}, {"model.bias", "true"}, {"model.norm_eps", "1e-3"}};
    for (const auto& [key, value] : changes) {
        const Ran other = train_gpt(trained(), fmt::format("--run.dir={} --checkpoint.resume={} --{}={}",
                                                           folder("other"), from, key, value));
        EXPECT(other.code == 78 && has(other.err, key), "%s: code %d, '%s'", key, other.code,
               other.err.c_str());
    }
}

TEST(a_llama_goes_to_hugging_face_and_back) {
    const std::string config = tiny_program_config(
        "llama", {{"model", {{"norm", "rmsnorm"}, {"bias", false}, {"position", "rope"}, {"heads", 4},
                             {"activation", "swiglu"}, {"kv_heads", 2}, {"ffn_channels", 96},
                             {"tied", false}}},
                  {"train", {{"steps", 3}}}, {"checkpoint", {{"every", 3}}}});
    const Ran made = train_gpt(config), out = train_gpt(config, "--export=hf:" + folder("llama_hf"));
    EXPECT(made.code == 0 && out.code == 0 && has(out.out, "computes the same"), "'%s' '%s'",
           made.err.c_str(), out.err.c_str());
    const auto again = [&](const std::string& args) {
        return train_gpt(config, fmt::format("--run.dir={} --train.steps=0 --model.init=hf:{} {}",
                                             folder("back"), folder("llama_hf"), args));
    };
    const Ran back = again("");
    EXPECT(back.code == 0, "'%s'", back.err.c_str());
    EXPECT(rows_of("back", "val").at(0)["loss"] == rows_of("llama", "val").back()["loss"], "another loss");
    // training from the import is training from the checkpoint: new optimizer state, the same weights
    const std::string own = " --run.dir=" + folder("own") + " --model.init=";
    const Ran imported = again("--train.steps=3 --run.dir=" + folder("imported")),
              started = train_gpt(config, own + folder("llama") + "/step_3");
    EXPECT(imported.code == 0 && started.code == 0, "'%s' '%s'", imported.err.c_str(), started.err.c_str());
    const auto losses = rows_of("imported", "train"), expected = rows_of("own", "train");
    EXPECT(losses.size() == 3 && expected.size() == 3, "%zu and %zu steps", losses.size(), expected.size());
    for (size_t i = 0; i < std::min(losses.size(), expected.size()); i++)
        EXPECT(losses[i]["loss"] == expected[i]["loss"] && losses[i]["norm"] == expected[i]["norm"],
               "step %zu: %s, expected %s", i + 1, losses[i].dump().c_str(), expected[i].dump().c_str());
    const std::pair<const char*, const char*> named[] = {
        {"kv_heads", "4"}, {"norm_eps", "1e-06"}, {"tied", "true"}, {"activation", "relu2"},
        {"qk_norm", "before"}};
    for (const auto& [key, value] : named) {
        const Ran other = again(fmt::format("--model.{}={}", key, value));
        EXPECT(other.code == 78 && has(other.err, std::string("model.") + key) && has(other.err, value),
               "%s: code %d, '%s'", key, other.code, other.err.c_str());
    }
    EXPECT(has(made.out, "\nexports: hf, gguf\n"), "'%s'", made.out.c_str());
    const Ran longer = again("--model.context=64 --run.dir=" + folder("longer"));
    EXPECT(longer.code == 0 && has(longer.err, "model.context = 64, not 32;"),
           "code %d, '%s'", longer.code, longer.err.c_str());
    // a plan needs no weights
    const std::string shape = folder("llama_shape");
    run("mkdir " + shape + " && cp " + folder("llama_hf") + "/config.json " + shape);
    const std::string init = "--run.dir=" + folder("none") + " --model.init=hf:" + shape;
    const Ran plan = train_gpt(config, init + " --plan"), train = train_gpt(config, init);
    EXPECT(plan.code == 0 && has(plan.out, "\"ffn_channels\": 96"), "'%s'", plan.err.c_str());
    EXPECT(train.code == 78 && has(train.err, "there is no model.safetensors"), "'%s'", train.err.c_str());
    const Ran sized = again("--model.head_channels=0 --run.dir=" + folder("sized"));
    EXPECT(sized.code == 0, "0 is what it stands for: '%s'", sized.err.c_str());
}
