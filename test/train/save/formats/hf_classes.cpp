// Hugging Face's Llama, Qwen2, Qwen3, Mistral and NanoChat: an export gives the trainer's logits in plain
// loops, and an import of one or several files, of any precision, is the model that was written.
#include "test/foreign_models.h"
#include "test/program.h"

namespace PRECISION {

using test::folder, test::json;
using std::string;

static string dir_of(const string& kind) { return folder(TEST_PRECISION "_" + kind); }

static const Exported& exported(const string& kind) {
    static std::map<string, Exported> all;
    if (!all.contains(kind)) all.emplace(kind, export_kind(kind, {"hf:" + dir_of(kind)}));
    return all.at(kind);
}

static json config_of(const string& dir) { return json::parse(test::text_of(dir + "/config.json")); }

TEST_IF(!kIsBf16, exports_give_the_same_logits) {
    for (const auto& [kind, model] : kForeign) {
        const Exported& e = exported(kind);
        const SafetensorsFile file(dir_of(kind) + "/model.safetensors");
        const auto get = [&](const string& name) {
            const TensorInfo* t = file.find(name);
            CHECK(t && t->dtype == "F32", "no {}", name);
            std::vector<float> values(size_t(t->bytes()) / 4);
            file.read(*t, values.data());
            return test::Vector(values.begin(), values.end());
        };
        const test::PlainModel plain{with_sizes(e.cfg.model), get, kind == "NanoChat"};
        expect_same(plain.logits(e.ids), e.logits, kind);
        const string name = (kind.starts_with("Llama") ? "Llama" : kind.substr(0, kind.find("Window"))) +
                            "ForCausalLM";
        EXPECT(config_of(dir_of(kind))["architectures"][0] == name, "%s", kind.c_str());
    }
}

// Both forms of the turns are written.
TEST_IF(!kIsBf16, config_json_is_for_transformers_4_and_5) {
    exported("Qwen3");
    const json c = config_of(dir_of("Qwen3"));
    const json& turns = c["rope_parameters"];
    EXPECT(turns["rope_theta"] == 100. && turns["rope_type"] == "default", "%s", turns.dump().c_str());
    EXPECT(c["rope_theta"] == 100. && c["rope_scaling"].is_null(), "%s", c.dump().c_str());
    EXPECT(c["dtype"] == "float32" && c["torch_dtype"] == "float32" && c["head_dim"] == 20 &&
           c["num_key_value_heads"] == 3 && c["use_sliding_window"] == false, "%s", c.dump().c_str());
}

// ---------------------------------------------------------------------------------------------------------
// imports

TEST_IF(!kIsBf16, imports_are_what_was_exported) {
    for (const auto& [kind, model] : kForeign) {
        const Exported& e = exported(kind);
        Config own, theirs;
        own.model = with_sizes(e.cfg.model);
        theirs.model = open_foreign("hf:" + dir_of(kind)).shape;
        EXPECT(to_json(own) == to_json(theirs), "%s: %s\n%s", kind.c_str(), to_json(own).c_str(),
               to_json(theirs).c_str());
        expect_values("hf:" + dir_of(kind), e, 0);
    }
}

static uint16_t half_bits(float v) {                    // REQUIRES: |v| < 65504
    const uint32_t u = std::bit_cast<uint32_t>(v), sign = u >> 16 & 0x8000;
    const int exponent = int(u >> 23 & 255) - 112;
    if (exponent < 1) return uint16_t(sign | uint32_t(std::lround(std::ldexp(std::abs(v), 24))));
    return uint16_t(sign | uint32_t(exponent) << 10 | (u >> 13 & 1023));
}

// The folder again, its tensors in `files` files of another precision.
static string resharded(const string& from, const string& dtype, size_t files) {
    const string to = from + "_" + dtype;
    std::filesystem::create_directories(to);
    std::filesystem::copy_file(from + "/config.json", to + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    const SafetensorsFile in(from + "/model.safetensors");
    json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", json::object()}};
    for (size_t f = 0; f < files; f++) {
        const string name = fmt::format("model-{:05}-of-{:05}.safetensors", f + 1, files);
        std::vector<TensorInfo> infos;
        for (size_t i = f; i < in.tensors.size(); i += files) {
            infos.push_back({.name = in.tensors[i].name, .dtype = dtype, .shape = in.tensors[i].shape});
            index["weight_map"][in.tensors[i].name] = name;
        }
        SafetensorsWriter out(to + "/" + name, infos);
        for (size_t i = f; i < in.tensors.size(); i += files) {
            std::vector<float> values(size_t(in.tensors[i].bytes()) / 4);
            in.read(in.tensors[i], values.data());
            if (dtype == "F32") {
                out.write(values.data(), values.size() * 4);
                continue;
            }
            std::vector<uint16_t> halves;
            for (const float v : values) halves.push_back(dtype == "F16" ? half_bits(v) : bfloat16_bits(v));
            out.write(halves.data(), halves.size() * 2);
        }
        out.close();
    }
    std::ofstream(to + "/model.safetensors.index.json") << index.dump(1);
    return to;
}

TEST_IF(!kIsBf16, several_files_of_any_precision) {
    for (const string kind : {"Llama", "NanoChat"}) {
        const Exported& e = exported(kind);
        for (const auto& [dtype, near] : {std::pair{"F32", 0.}, {"BF16", 1. / 256}, {"F16", 1. / 1024}})
            expect_values("hf:" + resharded(dir_of(kind), dtype, 3), e, near);
    }
}

static void refused(const string& dir, const std::vector<string>& words) {
    const Fatal end = test::fatal_of([&] { open_foreign("hf:" + dir); });
    EXPECT(end.code == kExitConfig, "%s: code %d, '%s'", words[0].c_str(), end.code, end.what());
    for (const string& w : words)
        EXPECT(strstr(end.what(), w.c_str()), "no '%s' in '%s'", w.c_str(), end.what());
}

TEST_IF(!kIsBf16, an_index_that_lies) {
    exported("Llama");
    const string dir = resharded(dir_of("Llama"), "F32", 2), path = dir + "/model.safetensors.index.json";
    const json good = json::parse(test::text_of(path));
    const auto change = [&](const string& tensor, const json& file, const std::vector<string>& words) {
        json index = good;
        if (file.is_null()) index["weight_map"].erase(tensor);
        else index["weight_map"][tensor] = file;
        std::ofstream(path) << index.dump();
        refused(dir, words);
    };
    change("model.norm.weight", "../config.json", {"model.norm.weight", "../config.json"});
    change("model.norm.weight", "/etc/x.safetensors", {"model.norm.weight", "/etc"});
    change("model.norm.weight", 3, {"model.norm.weight", "3"});
    change("model.norm.weight", "model-00009-of-00002.safetensors", {"model-00009", "no such file"});
    change("model.norm.weight", nullptr, {"model.norm.weight", "index.json"});
    change("lm_head.bias", "model-00001-of-00002.safetensors", {"lm_head.bias", "model-00001"});
    const string one = "model-00001-of-00002.safetensors", two = "model-00002-of-00002.safetensors";
    const bool in_first = good["weight_map"]["model.norm.weight"] == one;
    change("model.norm.weight", in_first ? two : one, {"model.norm.weight", "no tensor"});
    for (const char* text : {"", "[]", "{}", R"({"weight_map": 1})", R"({"weight_map": {}})"}) {
        std::ofstream(path) << text;
        refused(dir, {"index.json"});
    }
    std::filesystem::copy_file(dir + "/" + one, dir + "/model-00003-of-00002.safetensors");
    change("x", "model-00003-of-00002.safetensors", {"as well"});
}

TEST_IF(!kIsBf16, what_is_not_computed_is_named) {
    const auto change = [](const string& kind, const json& with, const std::vector<string>& words) {
        exported(kind);
        const string dir = resharded(dir_of(kind), "F32", 1);
        json c = config_of(dir_of(kind));
        c.merge_patch(with);
        std::ofstream(dir + "/config.json") << c.dump(1);
        refused(dir, words);
    };
    change("Llama", {{"attention_bias", true}}, {"attention_bias", "mlp_bias", "model.bias"});
    change("Llama", {{"mlp_bias", true}}, {"attention_bias", "mlp_bias", "model.bias"});
    change("Llama", {{"mlp_bias", true}, {"attention_bias", true}}, {"headb", "model.tied"});
    change("Qwen3", {{"attention_bias", true}}, {"attention_bias", "Qwen3ForCausalLM"});
    const json sliding = {"full_attention", "sliding_attention"};
    change("Qwen3", {{"use_sliding_window", 3}}, {"use_sliding_window", "3"});
    change("Qwen3", {{"layer_types", sliding}}, {"layer_types", "sliding", "use_sliding_window"});
    change("Qwen3Window", {{"sliding_window", 0}}, {"layer_types", "sliding"});
    change("Qwen3Window", {{"sliding_window", -4}}, {"sliding_window", "-4"});
    change("Qwen3Window", {{"layer_types", {"full_attention"}}}, {"layer_types has 1", "num_hidden_layers"});
    change("Qwen3Window", {{"layer_types", {"full_attention", "x"}}}, {"layer_types", "\"x\""});
    change("Llama", {{"layer_types", sliding}, {"use_sliding_window", true}, {"sliding_window", 4}},
           {"layer_types", "sliding"});
    const json longrope = {{"rope_type", "longrope"}, {"factor", 4.}};
    change("Llama", {{"rope_parameters", longrope}}, {"rope_parameters", "longrope", "\"yarn\""});
    const json llama3 = {{"rope_type", "llama3"}, {"factor", 4.}, {"low_freq_factor", 1.},
                         {"original_max_position_embeddings", 8192}};
    change("Llama", {{"rope_parameters", llama3}}, {"rope_parameters", "high_freq_factor"});
    change("LlamaTied", {{"rope_scaling", {{"factor", 8.}}}}, {"rope_scaling", "rope_parameters"});
    change("Llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.}}}}, {"rope_scaling", "leave one"});
    change("Llama", {{"rope_theta", 5e5}}, {"rope_theta", "500000", "1000"});
    for (const char* kind : {"Llama", "Qwen2", "Mistral", "NanoChat"}) {
        change(kind, {{"logit_scale", 0.0625}}, {"logit_scale = 0.0625", kind});
        change(kind, {{"attn_logit_softcapping", 50}}, {"attn_logit_softcapping = 50", kind});
        change(kind, {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}, {"partial_rotary_factor"});
    }
    change("Llama", {{"final_logit_softcapping", 30}}, {"final_logit_softcapping = 30"});
    change("Llama", {{"rope_scaling", {{"factor", 4.}}}}, {"rope_scaling has factor = 4"});
    change("Qwen2", {{"attention_bias", true}}, {"attention_bias"});
    change("Mistral", {{"num_local_experts", 8}}, {"num_local_experts = 8"});
    change("Llama", {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"});
    change("Llama", {{"model_type", "mamba"}}, {"model_type", "mamba", "llama", "qwen3"});
    change("Llama", {{"num_key_value_heads", 4}}, {"kv_heads", "4"});
    change("Llama", {{"num_hidden_layers", 2000}}, {"num_hidden_layers = 2000", "1 to 1024"});
    change("Llama", {{"intermediate_size", nullptr}}, {"intermediate_size"});
    change("Llama", {{"intermediate_size", 41}}, {"gate_proj", "[41, 48]"});
    change("Llama", {{"head_dim", 7}}, {"head_channels"});
    change("Llama", {{"rms_norm_eps", "1e-5"}}, {"rms_norm_eps"});
    change("Llama", {{"num_hidden_layers", 3}}, {"model.layers.2.", "num_hidden_layers = 3"});
    change("Llama", {{"num_hidden_layers", 1}}, {"model.layers.1.", "LlamaForCausalLM"});
    change("LlamaTied", {{"tie_word_embeddings", false}}, {"model.tied"});
}

TEST_IF(!kIsBf16, layers_with_a_window) {
    exported("Qwen3Window");
    const string dir = resharded(dir_of("Qwen3Window"), "F32", 1);
    const json written = config_of(dir_of("Qwen3Window"));
    const auto window_of = [&](const json& with) {
        json c = written;
        c.erase("layer_types");                         // of transformers before 4.53
        c.merge_patch(with);
        std::ofstream(dir + "/config.json") << c.dump(1);
        return open_foreign("hf:" + dir).shape.window;
    };
    using Windows = std::vector<int>;
    EXPECT(written["use_sliding_window"] == true && written["sliding_window"] == 5 &&
           written["max_window_layers"] == 1 && written["layer_types"][1] == "sliding_attention" &&
           written["layer_types"][0] == "full_attention", "%s", written.dump().c_str());
    EXPECT(window_of(json::object()) == Windows({0, 5}));
    EXPECT(window_of({{"max_window_layers", 0}}) == Windows({5}));
    EXPECT(window_of({{"max_window_layers", 2}}) == Windows({0}));
    EXPECT(window_of({{"use_sliding_window", false}}) == Windows({0}));
    const json types = {"sliding_attention", "full_attention"};
    EXPECT(window_of({{"layer_types", types}}) == Windows({5, 0}), "layer_types go first");
}

// Keys of models on the hub that change nothing.
TEST_IF(!kIsBf16, keys_of_no_harm) {
    exported("Llama");
    const string dir = resharded(dir_of("Llama"), "F32", 1);
    json c = config_of(dir_of("Llama"));
    c.merge_patch({{"is_llama_config", true}, {"sliding_window", nullptr}, {"use_qk_norm", false},
                   {"logit_scale", 1.0}, {"unsloth_version", "2025"}, {"use_mrope", false},
                   {"transformers.js_config", {{"kv_cache_dtype", "fp16"}}}, {"pad_token_id", 7},
                   {"rope_scaling", {{"rope_type", "default"}, {"factor", 1.0}}}});
    std::ofstream(dir + "/config.json") << c.dump(1);
    EXPECT(open_foreign("hf:" + dir).shape.layers == 2);
}

TEST_IF(!kIsBf16, a_window_in_every_layer) {
    const string dir = (exported("Mistral"), resharded(dir_of("Mistral"), "F32", 1));
    const json written = config_of(dir_of("Mistral"));
    const auto window_of = [&](const char* key, const json& value) {
        json c = written;
        c.erase("sliding_window");
        if (key) c[key] = value;
        std::ofstream(dir + "/config.json") << c.dump(1);
        return open_foreign("hf:" + dir).shape.window;
    };
    EXPECT(written["sliding_window"] == 5 && !written.contains("use_sliding_window"), "%s",
           written.dump().c_str());
    EXPECT(window_of("sliding_window", nullptr) == std::vector{0});
    EXPECT(window_of("sliding_window", 7) == std::vector{7});
    EXPECT(window_of(nullptr, nullptr) == std::vector{4096}, "of transformers' MistralConfig");
}

// The form of transformers 4.
TEST_IF(!kIsBf16, older_configs) {
    const Exported& e = exported("Llama");
    const string dir = resharded(dir_of("Llama"), "F32", 1);
    json c = config_of(dir_of("Llama"));
    for (const char* key : {"rope_parameters", "rope_scaling", "dtype", "attention_bias", "mlp_bias"})
        c.erase(key);
    c["head_dim"] = e.cfg.model.head_channels;
    std::ofstream(dir + "/config.json") << c.dump(1);
    const ModelConfig m = open_foreign("hf:" + dir).shape;
    EXPECT(m.rope_theta == 1e3 && !m.bias && !m.tied, "theta %g", m.rope_theta);
    expect_values("hf:" + dir, e, 0);
}

TEST_IF(!kIsBf16, a_model_without_a_class) {
    const auto way = [](ModelConfig m, const string& word) {
        m.vocab = 66;
        const Fatal end = test::fatal_of([&] { check_export_kind("hf:x", m); });
        EXPECT(end.code == kExitConfig && strstr(end.what(), word.c_str()), "no '%s' in '%s'", word.c_str(),
               end.what());
    };
    ModelConfig m = of_kind(kForeign.at("NanoChat"), tiny_config().model);
    m.softcap_kind = SoftcapKind::Sqrt;
    way(m, "NanoChatForCausalLM comes nearest, and has model.softcap_kind = \"tanh\", not \"sqrt\"");
    m = of_kind(kForeign.at("Llama"), tiny_config().model);
    m.attention_scale = 0.12;
    way(m, "LlamaForCausalLM comes nearest, and has model.attention_scale = 0, not 0.12");
    m = of_kind(kForeign.at("Llama"), tiny_config().model);
    m.window = {0, 5};
    way(m, "LlamaForCausalLM comes nearest, and has model.window = 0, not [0, 5]");
    m.qkv_bias = true, m.bias = false, m.softcap = 3;
    way(m, "Qwen2ForCausalLM comes nearest, and has model.softcap = 0, not 3");
    m = of_kind(kForeign.at("Qwen3"), tiny_config().model);
    m.window = {4, 5};
    way(m, "Qwen3ForCausalLM comes nearest, and has model.window = one size and 0, not [4,5]");
    m = of_kind(kForeign.at("LlamaTied"), tiny_config().model);
    m.tied = false;
    way(m, "headb");
    m = of_kind(kForeign.at("NanoChat"), tiny_config().model);
    m.shortcut = Shortcut::X0;
    way(m, "NanoChatForCausalLM comes nearest, and has model.shortcut = \"none\", not \"x0\"");
    m.value_embeddings = ValueEmbeddings::Alternate;
    way(m, "model.shortcut = \"none\", not \"x0\"; model.value_embeddings = \"none\", not \"alternate\"");
}

}  // namespace PRECISION
