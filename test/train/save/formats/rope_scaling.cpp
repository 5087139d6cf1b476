// RoPE scaling in files of other programs: the keys of llama.cpp and of transformers.
#include "llmc/io/files/gguf.h"
#include "llmc/train/save/formats/format_gguf.h"
#include "test/foreign_models.h"
#include "test/gguf.h"
#include "test/program.h"

namespace PRECISION {

using test::folder, test::json;
using std::string;

// A Qwen2 with YaRN and a Llama without scaling, in both formats.
static const std::map<string, Exported>& scaled_models() {
    static const std::map<string, Exported> all = [] {
        std::map<string, Exported> made;
        for (const string kind : {"Qwen2", "Llama"}) {
            const string place = folder(TEST_PRECISION "_scaled_" + kind);
            made.emplace(kind, export_kind(kind, {"hf:" + place, "gguf:" + place + ".gguf"}));
        }
        return made;
    }();
    return all;
}
static string gguf_of(const string& kind) {
    scaled_models();
    return folder(TEST_PRECISION "_scaled_" + kind + ".gguf");
}

// The model's rope_parameters, and rope_theta beside them.
static RopeScaling scaling_of_form(const json& form, double theta = 1e4) {
    scaled_models();
    const string dir = folder(TEST_PRECISION "_scaled_Qwen2");
    json c = json::parse(test::text_of(dir + "/config.json"));
    c["rope_parameters"] = form, c["rope_scaling"] = nullptr, c["rope_theta"] = theta;
    std::ofstream(dir + "/config.json") << c.dump(1);
    return open_foreign("hf:" + dir).shape.rope_scaling;
}

// By the numbers of transformers 5.24, modeling_rope_utils.py.
TEST_IF(!kIsBf16, yarn_of_other_files) {
    const json least = {{"type", "yarn"}, {"factor", 40}, {"truncate", true}};
    json scales = least, given = least;
    scales.merge_patch({{"mscale", 1}, {"mscale_all_dim", 0.707}});
    scales["original_max_position_embeddings"] = 4096;
    given.merge_patch({{"attention_factor", 1.25}, {"beta_fast", 16}, {"beta_slow", 2}});
    const RopeScaling a = scaling_of_form(least), b = scaling_of_form(scales), c = scaling_of_form(given);
    const int context = scaled_models().at("Qwen2").cfg.model.context;
    EXPECT(a.kind == RopeScalingKind::Yarn && a.factor == 40 && a.attention == 0 && a.context == context);
    EXPECT(a.beta_fast == 32 && a.beta_slow == 1 && b.context == 4096, "%g %d", a.beta_fast, b.context);
    EXPECT_NEAR(b.attention, 1.0857263992561355, 1e-15);
    EXPECT(c.attention == 1.25 && c.beta_fast == 16 && c.beta_slow == 2, "%g", c.attention);
}

TEST_IF(!kIsBf16, scalings_that_are_none) {
    const auto refused = [](const json& with, const string& words, double theta = 1e4) {
        json form = {{"type", "yarn"}, {"factor", 4}};
        form.merge_patch(with);
        const Fatal end = test::fatal_of([&] { scaling_of_form(form, theta); });
        EXPECT(end.code == kExitConfig && strstr(end.what(), words.c_str()), "no '%s' in '%s'", words.c_str(),
               end.what());
    };
    refused({{"factor", 0.5}}, "rope_parameters: factor is 0.5");
    refused({{"factor", nullptr}}, "rope_parameters: factor is null");
    refused({{"beta_slow", 40}}, "beta_fast 32, beta_slow 40");
    refused({{"truncate", false}}, "truncate = false");
    refused({{"attention_factor", -1}}, "attention_factor is -1");
    refused({{"original_max_position_embeddings", 0.5}}, "original_max_position_embeddings is 0.5");
    refused({{"type", "linear"}, {"beta_fast", 8}}, "rope_parameters has beta_fast = 8");
    refused(json::object(), "model.rope_theta = 1: model.rope_scaling = yarn needs a base above 1", 1);
}

// A file of another program: other keys of the scaling, and none of this program's.
static RopeScaling scaling_of_keys(const string& kind, const std::map<string, GgufValue>& keys) {
    const GgufFile file(gguf_of(kind));
    std::vector<GgufPair> pairs;
    for (const auto& [key, value] : file.pairs)
        if (key.find("scaling") == string::npos) pairs.push_back({key, value});
    for (const auto& [key, value] : keys) pairs.push_back({key, value});
    std::vector<GgufTensor> tensors;
    for (const auto& [name, t] : file.tensors) tensors.push_back(t);
    const string path = folder(TEST_PRECISION "_keys.gguf");
    GgufWriter out(path, pairs, tensors);
    const test::Gguf g = test::read_gguf(gguf_of(kind));
    for (const auto& [name, t] : file.tensors) {
        const std::vector<float>& values = g.tensors.at(name).values;
        out.write(values.data(), values.size());
    }
    out.close();
    return open_foreign("gguf:" + path).shape.rope_scaling;
}

// llama.cpp multiplies YaRN's cos and sin by attn_factor (0.1 ln(factor) + 1).
TEST_IF(!kIsBf16, scalings_by_the_keys_of_llama_cpp) {
    const GgufFile file(gguf_of("Qwen2"));
    const double by_factor = 0.1 * std::log(4.) + 1;
    EXPECT(file.pairs.at("qwen2.rope.scaling.type") == GgufValue(string("yarn")) &&
           file.pairs.at("qwen2.rope.scaling.factor") == GgufValue(4.f) &&
           file.pairs.at("qwen2.rope.scaling.original_context_length") == GgufValue(300u));
    EXPECT_NEAR(std::get<float>(file.pairs.at("qwen2.rope.scaling.attn_factor")), 1.7 / by_factor, 1e-7);

    const std::map<string, GgufValue> yarn = {{"qwen2.rope.scaling.type", string("yarn")},
                                              {"qwen2.rope.scaling.factor", 4.f}};
    std::map<string, GgufValue> more = yarn;
    more["qwen2.rope.scaling.original_context_length"] = 24u, more["qwen2.rope.scaling.attn_factor"] = 0.5f;
    const int context = scaled_models().at("Qwen2").cfg.model.context;
    const RopeScaling a = scaling_of_keys("Qwen2", yarn), b = scaling_of_keys("Qwen2", more);
    EXPECT(a == RopeScaling({.kind = RopeScalingKind::Yarn, .factor = 4, .context = context}));
    EXPECT(b.kind == RopeScalingKind::Yarn && b.context == 24 && b.factor == 4, "%d", b.context);
    EXPECT_NEAR(b.attention, 0.5 * by_factor, 1e-12);
    const RopeScaling linear = {.kind = RopeScalingKind::Linear, .factor = 2.5};
    EXPECT(scaling_of_keys("Llama", {{"llama.rope.scaling.factor", 2.5f}}) == linear, "without a type");
    EXPECT(scaling_of_keys("Llama", {{"llama.rope.scale_linear", 2.5f}}) == linear, "by the old name");
    EXPECT(!scaling_of_keys("Llama", {{"llama.rope.scaling.type", string("none")}}).used());
    const string other = R"({"type": "yarn", "factor": 8, "context": 300})";
    more["train_gpt.rope_scaling"] = other;
    const Fatal end = test::fatal_of([&] { scaling_of_keys("Qwen2", more); });
    EXPECT(end.code == kExitConfig && strstr(end.what(), "qwen2.rope.scaling.* say otherwise"), "'%s'",
           end.what());
}

// GGUF's Qwen has no divisors, and llama.cpp no betas for a Llama.
TEST_IF(!kIsBf16, scalings_that_gguf_has_not) {
    const auto refused = [](const string& name, const string& id, RopeScaling scaling, const string& words) {
        ModelConfig m = of_kind(kForeign.at(name), tiny_config().model);
        m.rope_scaling = scaling;
        for (const ForeignKind& kind : gguf_kinds()) {
            const std::vector<string> why = kind.id == id ? in_the_way(m, kind) : std::vector{words};
            EXPECT(why.size() == 1 && why[0].find(words) != string::npos, "%s", id.c_str());
        }
        EXPECT(test::fatal_of([&] { check_export_kind("gguf:x", m); }).code == kExitConfig);
    };
    refused("Qwen2", "qwen2", kLlama3, "model.rope_scaling = none, linear or yarn, not llama3");
    refused("Llama", "llama", kYarn, "beta_fast = 32 and beta_slow = 1, not 1.5 and 0.5");
}

}  // namespace PRECISION
