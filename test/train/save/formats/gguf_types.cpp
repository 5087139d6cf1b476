// GGUF files in other formats than FP32, as users export them; they are read back.
#include "llmc/io/files/gguf.h"
#include "test/program.h"

using namespace test;
using std::string, std::vector;

// A Llama of 2 blocks.
static const string& trained() {
    static const string config = test::trained_config(
        "types", {{"model", {{"norm", "rmsnorm"}, {"bias", false}, {"position", "rope"}, {"heads", 4},
                             {"activation", "swiglu"}, {"kv_heads", 2}, {"ffn_channels", 80},
                             {"tied", false}}},
                  {"train", {{"steps", 3}}}, {"checkpoint", {{"every", 3}}}});
    return config;
}

static double loss_of(const string& init) {
    const string config = tiny_program_config("loss", {{"model", nullptr}});
    const Ran ran = train_gpt(config, "--train.steps=0 --model.init=" + init);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const double loss = ran.code ? 0 : double(rows_of("loss", "val").back()["loss"]);
    run("rm -rf " + folder("loss"));
    return loss;
}

// Rows of 80 are no whole blocks of 32: they are F16.
TEST(a_name_says_what_the_file_holds) {
    struct Case { const char *name, *settings; GgufType matrix, down; uint32_t file; double apart; };
    const vector<Case> cases = {
        {"m.gguf", "", GgufType::F32, GgufType::F32, 0, 1e-6},
        {"m-f32.gguf", "", GgufType::F32, GgufType::F32, 0, 1e-6},
        {"m-F16.gguf", "", GgufType::F16, GgufType::F16, 1, 1e-4},
        {"m.bf16.gguf", "", GgufType::BF16, GgufType::BF16, 32, 1e-3},
        {"M.Q8_0.gguf", "", GgufType::Q8_0, GgufType::F16, 7, 1e-2},
        {"b.gguf", "--run.precision=bf16", GgufType::F32, GgufType::F32, 0, 1e-6},
        {"b-q8_0.gguf", "--run.precision=bf16", GgufType::Q8_0, GgufType::F16, 7, 1e-2}};
    const string step = folder("types") + "/step_3";
    trained();
    const double own = loss_of(step);
    for (const Case& c : cases) {
        const string path = folder(c.name);
        const Ran ran = train_gpt(trained(), string(c.settings) + " --export=gguf:" + path);
        EXPECT(ran.code == 0 && has(ran.out, "computes the same"), "%s: code %d, '%s'", c.name, ran.code,
               ran.err.c_str());
        if (ran.code) continue;
        const GgufFile file(path);
        EXPECT(file.find("blk.1.attn_q.weight")->type == c.matrix, "%s", c.name);
        EXPECT(file.find("token_embd.weight")->type == c.matrix, "%s", c.name);
        EXPECT(file.find("blk.0.ffn_down.weight")->type == c.down, "%s", c.name);
        EXPECT(file.find("blk.0.attn_norm.weight")->type == GgufType::F32, "%s", c.name);
        EXPECT(std::get<uint32_t>(file.pairs.at("general.file_type")) == c.file, "%s", c.name);
        EXPECT_NEAR(loss_of("gguf:" + path), own, c.apart);
    }
    const Ran other = train_gpt(trained(), "--export=gguf:" + folder("m.Q4_K_M.gguf"));
    EXPECT(other.code == 78 && has(other.err, "the name says q4_k_m") && no_message(other.err).empty() &&
           !there(folder("m.Q4_K_M.gguf")), "code %d, '%s'", other.code, other.err.c_str());
    EXPECT(train_gpt(trained(), "--export=gguf:" + folder("llama-3.gguf")).code == 0, "no format's name");
}

// GPT-2's head is written a second time, and its positions stay FP32.
TEST(gpt2_in_q8) {
    const string config = tiny_program_config("gpt2_q8", {{"checkpoint", {{"every", 10}}}});
    EXPECT(train_gpt(config).code == 0);
    const string path = folder("gpt2.q8_0.gguf");
    const Ran ran = train_gpt(config, "--export=gguf:" + path);
    EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
    const GgufFile file(path);
    EXPECT(file.find("position_embd.weight")->type == GgufType::F32);
    EXPECT(file.find("output.weight")->type == GgufType::Q8_0);
    EXPECT_NEAR(loss_of("gguf:" + path), loss_of(folder("gpt2_q8") + "/step_10"), 1e-2);
}
