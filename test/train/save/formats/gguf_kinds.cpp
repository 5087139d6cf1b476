// GGUF's Llama, Qwen2 and Qwen3: an export gives the trainer's logits in plain loops, an import is the model
// that was written, and keys of another computation are refused.
#include "llmc/io/files/gguf.h"
#include "test/foreign_models.h"
#include "test/gguf.h"

namespace PRECISION {

using test::folder;
using std::string;

static string file_of(const string& kind) { return folder(TEST_PRECISION "_" + kind + ".gguf"); }

// With and without scaled turns; GGUF's Llama has no biases.
static const Exported& exported(const string& kind) {
    static std::map<string, Exported> all;
    if (!all.contains(kind)) all.emplace(kind, export_kind(kind, {"gguf:" + file_of(kind)}));
    return all.at(kind);
}
static const std::vector<string> kNames = {"Llama", "LlamaScaled", "LlamaLinear", "Qwen3", "Qwen2"};

// Hugging Face's name of a tensor of llama.cpp.
static string gguf_name(const string& name) {
    static const std::vector<std::pair<string, string>> parts = {
        {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"},
        {"model.layers.", "blk."}, {"post_attention_layernorm", "ffn_norm"}, {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"}};
    string theirs = name;
    for (const auto& [from, to] : parts)
        if (const size_t at = theirs.find(from); at != string::npos) theirs.replace(at, from.size(), to);
    return theirs;
}

TEST_IF(!kIsBf16, exports_give_the_same_logits) {
    for (const string& kind : kNames) {
        const Exported& e = exported(kind);
        const test::Gguf g = test::read_gguf(file_of(kind));
        const ModelConfig m = with_sizes(e.cfg.model);
        const size_t D = size_t(m.head_channels), C = size_t(m.channels);
        const auto get = [&](const string& name) {
            const string theirs = gguf_name(name);
            const std::vector<float>& v = g.tensors.at(theirs).values;
            test::Vector out(v.begin(), v.end());
            const bool turns = theirs.ends_with("attn_q.weight") || theirs.ends_with("attn_k.weight");
            if (!turns || kind.starts_with("Qwen")) return out;
            // llama.cpp turns neighbours
            for (size_t row = 0; row < v.size() / C; row++) {
                const size_t i = row % D, here = row / D * D + i / 2 + (i % 2 ? D / 2 : 0);
                for (size_t c = 0; c < C; c++) out[here * C + c] = v[row * C + c];
            }
            return out;
        };
        test::PlainModel plain{m, get};
        expect_same(plain.logits(e.ids), e.logits, kind);
        if (m.rope_scaling.kind != RopeScalingKind::Llama3) continue;
        const std::vector<float>& divisors = g.tensors.at("rope_freqs.weight").values;
        for (size_t i = 0; i < D / 2; i++) {
            const double bare = std::pow(m.rope_theta, -2. * double(i) / double(D));
            EXPECT_NEAR(bare / double(divisors[i]), plain.frequency(i), 1e-6 * bare);
        }
    }
}

TEST_IF(!kIsBf16, imports_are_what_was_exported) {
    for (const string& kind : kNames) {
        const Exported& e = exported(kind);
        const ForeignModel m = open_foreign("gguf:" + file_of(kind));
        Config own, theirs;
        own.model = with_sizes(e.cfg.model);
        theirs.model = m.shape;
        EXPECT(to_json(own) == to_json(theirs), "%s: %s\n%s", kind.c_str(), to_json(own).c_str(),
               to_json(theirs).c_str());
        for (const Tensor& t : whole_tensors(make_dims(m.shape))) {
            const std::vector<float>& values = e.values.at(t.name);
            std::vector<float> read(values.size());
            const size_t rows = size_t(t.param.whole_rows), cols = size_t(t.param.whole_cols);
            for (size_t row = 0, n; row < rows; row += n) {
                n = std::min<size_t>(7, rows - row);
                m.read(t, row, n, &read[row * cols]);
            }
            EXPECT(read == values, "%s: %s", kind.c_str(), t.name.c_str());
        }
    }
}

// ---------------------------------------------------------------------------------------------------------
// files made here

template <class T> static void put(string& out, T v) {
    out.append(reinterpret_cast<const char*>(&v), sizeof v);
}

// Words of an architecture that this program does not compute.
TEST_IF(!kIsBf16, what_is_not_computed_is_named) {
    exported("Llama");
    const string good = test::text_of(file_of("Llama")), path = folder(TEST_PRECISION "_bad.gguf");
    const auto change = [&](const string& from, const string& to, const string& word) {
        string bad = good;
        const size_t at = bad.find(from);
        CHECK(at != string::npos && from.size() == to.size(), "{}", from);
        std::ofstream(path, std::ios::binary) << bad.replace(at, to.size(), to);
        const Fatal end = test::fatal_of([&] { open_foreign("gguf:" + path); });
        EXPECT(end.code == kExitConfig && strstr(end.what(), word.c_str()), "no '%s' in '%s'", word.c_str(),
               end.what());
    };
    change("llama", "mamba", "general.architecture");
    change("llama.block_count", "llama.block_cound", "llama.block_count");
    change("blk.1.ffn_up", "blk.9.ffn_up", "blk.1.ffn_up");
    change("output_norm", "outpux_norm", "output_norm");
    const auto number = [](const string& key, auto v) {
        string bytes = key;
        put(bytes, v);
        return bytes;
    };
    const string base = number("llama.rope.freq_base", uint32_t(6));        // 6: FP32
    for (const auto& [bits, shown] : {std::pair{0x7fc00000u, "nan"}, {0x7f800000u, "inf"}})
        change(number(base, 1e3f), number(base, bits), string("llama.rope.freq_base = ") + shown);
}

// The least header of a Llama: a value by key, and tensors by name, of FP32 zeros.
static string small_llama(const std::map<string, GgufValue>& more, const std::vector<GgufTensor>& tensors) {
    std::map<string, GgufValue> values = {
        {"general.architecture", string("llama")}, {"llama.context_length", 8u},
        {"llama.embedding_length", 4u}, {"llama.feed_forward_length", 8u}, {"llama.block_count", 1u},
        {"llama.attention.head_count", 2u}, {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
        {"llama.vocab_size", 300u}};
    for (const auto& [key, value] : more) values[key] = value;
    std::vector<GgufPair> pairs;
    for (const auto& [key, value] : values) pairs.push_back({key, value});
    const string path = folder(TEST_PRECISION "_small.gguf");
    GgufWriter file(path, pairs, tensors);
    for (const GgufTensor& t : tensors) {
        size_t count = 1;
        for (const uint64_t n : t.shape) count *= n;
        const std::vector<float> zeros(count);
        file.write(zeros.data(), count);
    }
    file.close();
    return path;
}

static void expect_refused(const string& path, const string& word) {
    const Fatal end = test::fatal_of([&] { open_foreign("gguf:" + path); });
    EXPECT(end.code == kExitConfig && strstr(end.what(), word.c_str()), "no '%s' in '%s'", word.c_str(),
           end.what());
}

TEST_IF(!kIsBf16, numbers_that_are_none_matter_where_they_are_used) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    expect_refused(small_llama({{"llama.rope.freq_base", nan}}, {}), "llama.rope.freq_base = nan");
    expect_refused(small_llama({{"llama.expert_count", nan}}, {}), "llama.expert_count is nan");
    expect_refused(small_llama({{"general.score", nan}, {"general.other", HUGE_VAL}}, {}),
                   "no tensor 'token_embd.weight'");
}

// Without pairs of channels no largest divisor is looked for.
TEST_IF(!kIsBf16, heads_without_pairs_of_channels_are_refused) {
    const std::vector<GgufTensor> divisors = {{.name = "rope_freqs.weight", .shape = {0}}};
    expect_refused(small_llama({{"llama.attention.head_count", 8u}}, divisors),
                   "llama.attention.head_count = 8");
    expect_refused(small_llama({{"llama.attention.key_length", 1u}}, divisors), "heads of 1 channels");
}

TEST_IF(!kIsBf16, keys_of_another_computation) {
    const auto refused = [](const char* key, GgufValue value) {
        expect_refused(small_llama({{key, std::move(value)}}, {}), string(key) + " is ");
    };
    refused("llama.rope.scaling.type", string("longrope"));
    refused("llama.rope.scaling.factor", 0.5f);
    refused("llama.rope.scale_linear", -4.f);
    refused("llama.rope.scaling.attn_factor", 2.f);
    refused("llama.rope.scaling.yarn_beta_fast", 16.f);
    refused("llama.rope.scaling.yarn_attn_factor", 2.f);
    expect_refused(small_llama({{"llama.rope.scaling.type", string("yarn")}}, {}),
                   "there is no llama.rope.scaling.factor");
    refused("llama.attention.causal", false);
    refused("llama.attention.scale", 0.5f);
    refused("llama.logit_scale", 2.f);
    // no reader of this program knows them
    for (const char* key : {"llama.attention.unheard", "llama.final_logit_softcapping"})
        expect_refused(small_llama({{key, 2.f}}, {}), "the key " + string(key) + " = 2");
    expect_refused(small_llama({{"llama.attention.unheard", std::vector<int32_t>{1}}}, {}), "unheard");
    refused("llama.expert_count", 8u);
    refused("llama.attention.sliding_window", 4096u);
    refused("llama.attention.value_length", 4u);
    refused("llama.rope.dimension_count", 1u);
}

TEST_IF(!kIsBf16, one_of_several_files) {
    expect_refused(small_llama({{"split.count", 3u}}, {}), "one of 3 parts of a model");
}

TEST_IF(!kIsBf16, keys_that_change_nothing) {
    const string complete = "no tensor 'token_embd.weight'";
    for (const auto& [key, value] : std::map<string, GgufValue>{
             {"llama.rope.scaling.factor", 1.f}, {"llama.rope.scaling.original_context_length", 8u},
             {"llama.attention.causal", true}, {"llama.expert_used_count", 0u}, {"other.key", 7u}})
        expect_refused(small_llama({{key, value}}, {}), complete);
}

// Newer architectures have a list with a value for each layer.
TEST_IF(!kIsBf16, values_for_each_layer) {
    using List = std::vector<int32_t>;
    expect_refused(small_llama({{"llama.attention.head_count", List{2, 2}}}, {}), "'token_embd.weight'");
    expect_refused(small_llama({{"llama.attention.head_count", List{2, 1}}}, {}),
                   "llama.attention.head_count has a value for each layer, 2 and 1 among them");
    expect_refused(small_llama({{"llama.feed_forward_length", List{}}}, {}),
                   "llama.feed_forward_length is a list");
}

TEST_IF(!kIsBf16, scaled_turns_that_are_no_scaling) {
    const std::vector<GgufTensor> divisors = {{.name = "rope_freqs.weight", .shape = {1}}};
    expect_refused(small_llama({}, divisors), "the largest of rope_freqs.weight is 0");
    expect_refused(small_llama({{"llama.rope.scaling.factor", 4.f}}, divisors), "of two scalings");
    for (const GgufValue& v : {GgufValue(string("{\"type\"")), GgufValue(string("\"none\"}, \"x\": {")),
                               GgufValue(string("7")), GgufValue(7u)})
        expect_refused(small_llama({{"train_gpt.rope_scaling", v}}, divisors),
                       "_small.gguf: train_gpt.rope_scaling");
    // llama.cpp's Qwen3 has none
    exported("Qwen3");
    const test::Gguf g = test::read_gguf(file_of("Qwen3"));
    std::vector<GgufPair> pairs;
    const GgufFile file(file_of("Qwen3"));
    for (const auto& [key, value] : file.pairs) pairs.push_back({key, value});
    std::vector<GgufTensor> tensors = {{.name = "rope_freqs.weight", .shape = {10}}};
    for (const auto& [name, t] : file.tensors) tensors.push_back(t);
    const string path = folder(TEST_PRECISION "_odd_qwen3.gguf");
    GgufWriter out(path, pairs, tensors);
    const std::vector<float> ones(10, 1.f);
    out.write(ones.data(), 10);
    for (const auto& [name, t] : file.tensors) {
        const std::vector<float>& values = g.tensors.at(name).values;
        out.write(values.data(), values.size());
    }
    out.close();
    expect_refused(path, "the tensor \"rope_freqs.weight\" is no part of a Qwen3");
}

// The file has the embedding twice; this program computes with one.
TEST_IF(!kIsBf16, a_head_of_its_own_is_named_as_the_format_names_it) {
    const string path = folder(TEST_PRECISION "_gpt2.gguf");
    Config cfg = tiny_config();
    Tiny t(cfg, true);
    export_to({.shape = cfg.model, .layout = t.model.shards.layout, .read = t.reads(), .tokenizer = nullptr,
               .bf16 = false}, "gguf:" + path);
    const Tensor& wte = t.model.shards.layout.tensors.front();
    check_head(open_foreign("gguf:" + path), wte);
    const uint64_t at = [&] {
        const GgufFile file(path);
        return file.data_start + file.find("output.weight")->offset;
    }();
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(std::streamoff(at));
    const float other = 3;
    file.write(reinterpret_cast<const char*>(&other), sizeof other);
    file.close();
    const ForeignModel m = open_foreign("gguf:" + path);
    const Fatal end = test::fatal_of([&] { check_head(m, wte); });
    EXPECT(end.code == kExitConfig && strstr(end.what(), "its output.weight is not its embedding") &&
           !strstr(end.what(), "tie_word"), "'%s'", end.what());
}

}  // namespace PRECISION
