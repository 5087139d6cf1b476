// GGUF files in other formats than FP32: their bytes, how far they are from the weights, and the exports of
// users, which are read back.
#include "llmc/base/numbers/half.h"
#include "llmc/io/files/gguf.h"
#include "test/program.h"

using namespace test;
using std::string, std::vector;

static bool has(const string& text, const string& word) { return text.find(word) != string::npos; }

TEST(fp16_rounds_to_the_nearest) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = half{uint16_t(bits)};
        const uint16_t again = half_of(value).bits;
        if (std::isnan(value)) EXPECT(std::isnan(float(half{again})), "%04x", bits);
        else if (again != bits) EXPECT(false, "%04x becomes %04x", bits, again);
        if ((bits & 0x7fff) >= 0x7bff) continue;
        // halfway to the next goes to the even one, a little more or less to the nearer
        const float next = half{uint16_t(bits + 1)}, middle = (value + next) / 2;
        const uint32_t even = bits % 2 ? bits + 1 : bits;
        if (half_of(middle).bits != even) EXPECT(false, "between %04x and the next", bits);
        if (half_of(std::nextafter(middle, value)).bits != bits) EXPECT(false, "nearer to %04x", bits);
        if (half_of(std::nextafter(middle, next)).bits != bits + 1) EXPECT(false, "nearer than %04x", bits);
    }
    EXPECT(half_of(65519).bits == 0x7bff && half_of(65520).bits == 0x7c00 && half_of(-1e9f).bits == 0xfc00);
}

TEST(no_elements_are_decoded_from_nothing) {
    for (const GgufType type : {GgufType::F32, GgufType::F16, GgufType::BF16, GgufType::Q8_0}) {
        decode(type, nullptr, 0, nullptr);      // under UBSan
        EXPECT(encode(type, nullptr, 0).empty(), "%s", name_of(type));
    }
}

TEST(a_block_of_q8) {
    vector<float> values(64, 0);
    values[0] = 12.7f, values[1] = -12.7f, values[2] = 6.34f, values[31] = 0.06f;      // d = 0.1
    const vector<uint8_t> bytes = encode(GgufType::Q8_0, values.data(), 64);
    EXPECT(bytes.size() == 68 && bytes[0] == 0x66 && bytes[1] == 0x2e, "d is %02x%02x", bytes[1], bytes[0]);
    EXPECT(bytes[2] == 127 && bytes[3] == 0x81 && bytes[4] == 63 && bytes[33] == 1, "%d %d %d %d", bytes[2],
           bytes[3], bytes[4], bytes[33]);
    EXPECT(std::count(bytes.begin() + 34, bytes.end(), 0) == 34, "a block of zeros");
    for (const float odd : {NAN, -INFINITY}) {
        vector<float> lost(32, 1.f), back(32);
        lost[5] = odd;
        decode(GgufType::Q8_0, encode(GgufType::Q8_0, lost.data(), 32).data(), 32, back.data());
        EXPECT(std::isnan(back[0]) && std::isnan(back[5]), "a block with %g", double(odd));
    }
}

// d is 0 in FP16; for the smallest, 1 / d is not finite, which UBSan sees.
TEST(a_block_of_q8_with_tiny_values) {
    for (const float tiny : {1e-30f, 3e-37f, 1e-41f}) {
        vector<float> values(32, tiny), back(32, 1);
        values[3] = 0, values[4] = -tiny / 8;
        const vector<uint8_t> bytes = encode(GgufType::Q8_0, values.data(), 32);
        EXPECT(std::count(bytes.begin(), bytes.end(), 0) == 34, "%g: d and q are 0", double(tiny));
        decode(GgufType::Q8_0, bytes.data(), 32, back.data());
        EXPECT(std::count(back.begin(), back.end(), 0.f) == 32, "%g", double(tiny));
    }
}

TEST(how_far_a_format_is_from_the_values) {
    vector<float> values(32 * 64), read(values.size());
    for (size_t i = 0; i < values.size(); i++)
        values[i] = float(int(philox(1, 2, i).x[0] % 20001) - 10000) * std::ldexp(1.f, -int(i / 256) - 8);
    for (const GgufType type : {GgufType::F32, GgufType::F16, GgufType::BF16, GgufType::Q8_0}) {
        const vector<uint8_t> bytes = encode(type, values.data(), values.size());
        decode(type, bytes.data(), values.size(), read.data());
        double worst = 0;
        for (size_t i = 0; i < values.size(); i++) {
            double most = std::abs(values[i]);
            for (size_t j = i / 32 * 32; type == GgufType::Q8_0 && j < i / 32 * 32 + 32; j++)
                most = std::max<double>(most, std::abs(values[j]));
            worst = std::max(worst, std::abs(double(values[i]) - read[i]) / std::max(most, 1e-30));
        }
        const double allowed = type == GgufType::F32 ? 0 : type == GgufType::F16 ? 0x1p-11 :
                               type == GgufType::BF16 ? 0x1p-8 : 0.5 / 127 + 0x1p-11;
        EXPECT(worst <= allowed && (worst > 0) == (allowed > 0), "%s: %g of the value", name_of(type), worst);
    }
}

// A Llama of 2 blocks.
static const string& trained() {
    static const string config = [] {
        const string c = tiny_program_config(
            "types", {{"model", {{"norm", "rmsnorm"}, {"bias", false}, {"position", "rope"}, {"heads", 4},
                                 {"activation", "swiglu"}, {"kv_heads", 2}, {"ffn_channels", 80},
                                 {"tied", false}}},
                      {"train", {{"steps", 3}}}, {"checkpoint", {{"every", 3}}}});
        const Ran ran = train_gpt(c);
        EXPECT(ran.code == 0, "code %d, '%s'", ran.code, ran.err.c_str());
        return c;
    }();
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
