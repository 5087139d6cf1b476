// GGUF as llama.cpp reads GPT-2: its names of tensors and keys.
#include <cstring>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/io/files/gguf.h"
#include "llmc/io/text/vocabulary.h"
#include "llmc/train/save/formats/kind.h"

static constexpr const char* kHead = "output.weight";

static const ForeignKind& gpt2_in_gguf() {
    static const ForeignKind kind = {
        .name = "GPT-2 of llama.cpp", .id = "gpt2", .blocks = "blk.",
        .tensors = {
            {"wte", "token_embd.weight"}, {"wpe", "position_embd.weight"},
            {"ln1w", "attn_norm.weight"}, {"ln1b", "attn_norm.bias"},
            {"qkvw", "attn_qkv.weight"}, {"qkvb", "attn_qkv.bias"},
            {"attprojw", "attn_output.weight"}, {"attprojb", "attn_output.bias"},
            {"ln2w", "ffn_norm.weight"}, {"ln2b", "ffn_norm.bias"},
            {"fcw", "ffn_up.weight"}, {"fcb", "ffn_up.bias"},
            {"fcprojw", "ffn_down.weight"}, {"fcprojb", "ffn_down.bias"},
            {"lnfw", "output_norm.weight"}, {"lnfb", "output_norm.bias"}},
        .keys = {{"gpt2.context_length", "context"}, {"gpt2.embedding_length", "channels"},
                 {"gpt2.feed_forward_length", "ffn_channels"}, {"gpt2.block_count", "layers"},
                 {"gpt2.attention.head_count", "heads"},
                 {"gpt2.attention.layer_norm_epsilon", "norm_eps"}, {"gpt2.vocab_size", "vocab"}},
        .others = {}, .fixed = {}};
    return kind;
}

static std::string gguf_name(const Tensor& t) {
    return foreign_tensors(gpt2_in_gguf().tensors, gpt2_in_gguf().blocks, t).at(0).name;
}

static std::vector<uint64_t> shape_in_gguf(const Tensor& t) {
    if (t.param.whole_cols == 1) return {uint64_t(t.param.whole_rows)};
    return {uint64_t(t.param.whole_rows), uint64_t(t.param.whole_cols)};
}

// llama.cpp wants as many tokens as the embedding has rows; those beyond the tokenizer's are marked unused.
static void add_tokenizer(std::vector<GgufPair>& pairs, const Tokenizer* tokenizer, int vocab) {
    enum : int32_t { Normal = 1, Control = 3, Unused = 5 };
    if (!tokenizer) return pairs.push_back({"tokenizer.ggml.model", std::string("none")});
    const Vocabulary& v = tokenizer->vocabulary;
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    for (uint32_t id = 0; id < uint32_t(vocab); id++) {
        if (id >= v.size()) tokens.push_back("[unused " + std::to_string(id) + "]");
        else tokens.push_back(v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id)));
        types.push_back(id >= v.size() ? Unused : v.added[id] ? Control : Normal);
    }
    for (const Merge& m : v.merges)
        merges.push_back(characters_of_bytes(v.text_of(m.left)) + " " +
                         characters_of_bytes(v.text_of(m.right)));
    pairs.push_back({"tokenizer.ggml.model", std::string("gpt2")});
    pairs.push_back({"tokenizer.ggml.pre", std::string("gpt-2")});
    pairs.push_back({"tokenizer.ggml.tokens", tokens});
    pairs.push_back({"tokenizer.ggml.token_type", types});
    pairs.push_back({"tokenizer.ggml.merges", merges});
    pairs.push_back({"tokenizer.ggml.bos_token_id", v.eot});
    pairs.push_back({"tokenizer.ggml.eos_token_id", v.eot});
    pairs.push_back({"tokenizer.ggml.add_bos_token", false});
}

// 1e-5, not the double nearest to the FP32 nearest to 1e-5.
static Json shortest(float x) { return parse_json(fmt::format("{}", x)); }

// Every number is of 32 bits.
static GgufValue value_in_gguf(const Json& v) {
    if (v.is_natural()) return uint32_t(v.natural());
    return float(v.number());
}

static void write_gguf(const OwnModel& m, const std::string& path) {
    std::vector<GgufPair> pairs = {{"general.architecture", std::string("gpt2")},
                                   {"general.name", std::string("train_gpt")},
                                   {"general.file_type", uint32_t(0)}};         // all FP32
    for (const auto& [key, value] : keys_to_write(gpt2_in_gguf(), m.shape))
        pairs.push_back({key, value_in_gguf(value)});
    add_tokenizer(pairs, m.tokenizer, m.shape.vocab);
    std::vector<GgufTensor> infos;
    for (const Tensor& t : m.layout.tensors) infos.push_back({gguf_name(t), shape_in_gguf(t)});
    // the tied head once more: not every version of llama.cpp takes it from the embedding
    const Tensor& wte = m.layout.tensors.front();
    infos.push_back({kHead, shape_in_gguf(wte)});
    GgufWriter file(path, pairs, infos);
    for (const Tensor& t : m.layout.tensors) {
        const std::vector<float> values = m.read(t);
        file.write(values.data(), values.size());
    }
    const std::vector<float> head = m.read(wte);
    file.write(head.data(), head.size());
    file.close();
}

static ForeignModel open_gguf(const std::string& path) {
    auto file = std::make_shared<GgufFile>(path);
    ForeignModel m;
    std::map<std::string, Json> values;
    for (const auto& [key, value] : file->pairs) {
        if (const uint32_t* n = std::get_if<uint32_t>(&value)) values[key] = Json(*n);
        if (const float* x = std::get_if<float>(&value)) values[key] = shortest(*x);
    }
    m.shape = settings_of(gpt2_in_gguf(), path, [&](const char* key) -> const Json* {
        const auto found = values.find(key);
        return found == values.end() ? nullptr : &found->second;
    });
    m.read = [file](const Tensor& t, size_t row, size_t rows, float* out) {
        const size_t cols = size_t(t.param.whole_cols);
        file->read(gguf_name(t), shape_in_gguf(t), row * cols, rows * cols, out);
    };
    m.head = [file, V = uint64_t(m.shape.vocab), C = uint64_t(m.shape.channels)](size_t row, size_t rows,
                                                                               float* out) {
        file->read(kHead, {V, C}, row * C, rows * C, out);
    };
    return m;
}

static std::vector<const ForeignKind*> kinds_of_gguf() { return {&gpt2_in_gguf()}; }
static std::vector<std::string> files_of_gguf(const std::string& path, bool) { return {path}; }
static std::string meant_as_gguf(const std::string&) { return ""; }

extern const Format kGguf = {.prefix = "gguf", .place = "FILE", .meaning = "llama.cpp",
                             .imported = false,      // complete only where train_gpt has written the file
                             .writes_bf16 = false, .open = open_gguf, .write = write_gguf,
                             .kinds = kinds_of_gguf, .files = files_of_gguf, .meant = meant_as_gguf};
