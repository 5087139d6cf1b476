// A model that is no GPT-2, as a user trains it: it resumes as its own kind, and no format of GPT-2 takes it.
#include "test/program.h"

using namespace test;

static bool has(const std::string& text, const std::string& word) { return text.find(word) != text.npos; }

// A run of 4 steps with a checkpoint after 2 and 4, made once.
static const std::string& trained() {
    static const std::string config = [] {
        const std::string c = tiny_program_config(
            "rms", {{"model", {{"norm", "rmsnorm"}, {"norm_eps", 1e-6}, {"bias", false}}},
                    {"train", {{"steps", 4}}}, {"checkpoint", {{"every", 2}, {"keep_last", 0}}}});
        const Ran ran = train_gpt(c);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        return c;
    }();
    return config;
}

TEST(no_format_of_gpt2_holds_another_kind) {
    for (const std::string& to : std::vector<std::string>{"hf:" + folder("hf"), "gguf:" + folder("x.gguf"),
                                                          "llmc:" + folder("x.bin")}) {
        const Ran ran = train_gpt(trained(), "--export=" + to);
        EXPECT(ran.code == 78 && has(ran.err, "the model has model.norm = \"rmsnorm\"") &&
               no_message(ran.err).empty(), "%s: code %d, '%s'", to.c_str(), ran.code, ran.err.c_str());
    }
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
