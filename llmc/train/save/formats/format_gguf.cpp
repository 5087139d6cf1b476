#include "llmc/train/save/formats/format_gguf.h"

#include <cstring>
#include <optional>

#include "llmc/base/check.h"
#include "llmc/io/files/gguf.h"
#include "llmc/io/text/tokenizer_gguf.h"

inline namespace formats {

static constexpr const char* kName = "general.name";

std::vector<const ForeignKind*> kinds_of_gguf() {
    std::vector<const ForeignKind*> kinds;
    for (const ForeignKind& kind : gguf_kinds()) kinds.push_back(&kind);
    return kinds;
}

std::vector<uint64_t> shape_in_gguf(const ForeignTensor& p, const Tensor& t) {
    if (t.param.whole_cols == 1) return {p.rows};
    return {p.rows, uint64_t(t.param.whole_cols)};
}

// llama.cpp wants as many tokens as the embedding has rows; those beyond the tokenizer's are marked unused.
static void add_tokenizer(std::vector<GgufPair>& pairs, const Tokenizer* tokenizer, int vocab) {
    if (!tokenizer) return pairs.push_back({"tokenizer.ggml.model", std::string("none")});
    GgufVocabulary g = gguf_of_vocabulary(tokenizer->vocabulary, size_t(vocab));
    const auto put = [&](const std::string& key, GgufValue value) {
        pairs.push_back({"tokenizer." + key, std::move(value)});
    };
    put("ggml.model", std::move(g.model));
    put("ggml.pre", std::move(g.pre));
    put("ggml.tokens", std::move(g.tokens));
    put("ggml.token_type", std::move(g.token_type));
    put("ggml.merges", std::move(g.merges));
    put("ggml.bos_token_id", uint32_t(g.bos_token_id));
    put("ggml.eos_token_id", uint32_t(g.eos_token_id));
    if (g.unknown_token_id >= 0) put("ggml.unknown_token_id", uint32_t(g.unknown_token_id));
    put("ggml.add_bos_token", g.add_bos_token == 1);
    if (g.add_eos_token == 1) put("ggml.add_eos_token", true);
    if (!g.chat_template.empty()) put("chat_template", std::move(g.chat_template));
}

// A name says what its file holds, as llama.cpp's do: "model-f16.gguf", "Model.Q8_0.gguf".
static std::optional<GgufType> type_named(const std::string& path) {
    std::string name = path.substr(path.rfind('/') + 1);
    for (char& c : name) c = char(tolower(c));
    if (name.ends_with(".gguf")) name.resize(name.size() - 5);
    const size_t at = name.find_last_of(".-");
    if (at == name.npos) return std::nullopt;
    name = name.substr(at + 1);
    for (const GgufType type : {GgufType::F32, GgufType::F16, GgufType::BF16, GgufType::Q8_0}) {
        std::string known = name_of(type);
        for (char& c : known) c = char(tolower(c));
        if (name == known) return type;
    }
    const size_t bits = name.starts_with("iq") ? 2 : 1;             // "q4_k_m", "iq3_xs"; no "qwen3_tuned"
    const bool other = name.size() > bits + 1 && (bits == 2 || name[0] == 'q') && isdigit(name[bits]) &&
                       name[bits + 1] == '_';
    CHECK_INPUT(!other, "--export=gguf:{}: the name says {}, and this program writes F32, F16, BF16 and Q8_0",
                path, name);
    return std::nullopt;
}

// Vectors and positions stay FP32, as in llama.cpp's own files. Rows that are no whole blocks are F16.
static GgufType type_of(const Tensor& t, GgufType wanted) {
    if (t.param.whole_cols == 1 || t.name == "wpe") return GgufType::F32;
    const bool whole = uint64_t(t.param.whole_cols) % block_of(wanted).elements == 0;
    return whole ? wanted : GgufType::F16;
}

static bool round_as_gguf(const std::string& path, const Tensor& t, std::vector<float>& values) {
    const std::optional<GgufType> named = type_named(path);
    if (!named || *named == GgufType::F32) return false;
    const GgufType type = type_of(t, *named);
    const std::vector<uint8_t> bytes = encode(type, values.data(), values.size());
    decode(type, bytes.data(), values.size(), values.data());
    return true;
}

// llama.cpp's LLAMA_FTYPE: what most of the tensors are.
static uint32_t file_type(GgufType type) {
    if (type == GgufType::F16) return 1;
    if (type == GgufType::Q8_0) return 7;
    return type == GgufType::BF16 ? 32 : 0;
}

// Every number is of 32 bits.
static GgufValue value_in_gguf(const Json& v) {
    if (v.is_natural()) return uint32_t(v.natural());
    return float(v.number());
}

// ---------------------------------------------------------------------------------------------------------
// export

static void write_gguf(const OwnModel& m, const std::string& path) {
    const ForeignKind& kind = gguf_kinds()[kind_for(m.shape, kinds_of_gguf())];
    const GgufType type = type_named(path).value_or(GgufType::F32);
    const bool scaled = m.shape.rope_scaling.kind == RopeScalingKind::Llama3;
    std::vector<GgufPair> pairs = {{"general.architecture", std::string(kind.id)},
                                   {kName, std::string(kProgram)},
                                   {"general.file_type", file_type(type)}};
    for (const auto& [key, value] : keys_to_write(kind, m.shape))
        pairs.push_back({key, value_in_gguf(value)});
    for (GgufPair& pair : scaling_pairs(kind, m.shape)) pairs.push_back(std::move(pair));
    add_tokenizer(pairs, m.tokenizer, m.shape.vocab);
    std::vector<GgufTensor> infos;
    const auto foreign = [&](const Tensor& t) { return foreign_tensors(kind.tensors, kind.blocks, t); };
    for (const Tensor& t : m.layout.tensors)
        for (const ForeignTensor& p : foreign(t))
            infos.push_back({.name = p.name, .shape = shape_in_gguf(p, t), .type = type_of(t, type)});
    const std::vector<float> divisors = scaled ? divisors_of(m.shape) : std::vector<float>();
    if (scaled) infos.push_back({kRopeFreqs, {divisors.size()}});
    const Tensor& wte = m.layout.tensors.front();
    if (kind.two_heads)
        infos.push_back({.name = kHead, .shape = shape_in_gguf(foreign(wte)[0], wte),
                         .type = type_of(wte, type)});
    GgufWriter file(path, pairs, infos);
    const size_t D = size_t(with_sizes(m.shape).head_channels);
    for (const Tensor& t : m.layout.tensors) {
        const std::vector<float> all = m.read(t);
        for (const ForeignTensor& p : foreign(t)) {
            const std::vector<float> values = foreign_values(p, size_t(t.param.whole_cols), D, all);
            file.write(values.data(), values.size());
        }
    }
    if (scaled) file.write(divisors.data(), divisors.size());
    if (kind.two_heads) {
        const std::vector<float> head = m.read(wte);
        file.write(head.data(), head.size());
    }
    file.close();
}

static std::vector<std::string> files_of_gguf(const std::string& path) { return {path}; }
static bool is_own_gguf(const std::string& path, const ModelConfig&) {
    const GgufFile file(path);
    const auto name = file.pairs.find(kName);
    return name != file.pairs.end() && name->second == GgufValue(std::string(kProgram));
}
static std::string meant_as_gguf(const std::string& path) {
    return path.ends_with(".gguf") ? "gguf:" + path : "";
}

extern const Format kGguf = {.prefix = "gguf", .place = "FILE",
                             .meaning = "llama.cpp; rounded as X-f16.gguf, X-bf16 or X-q8_0 say",
                             .writes_bf16 = false, .open = open_gguf, .write = write_gguf,
                             .round = round_as_gguf, .kinds = kinds_of_gguf, .files = files_of_gguf,
                             .is_own = is_own_gguf, .head = kHead,
                             .other_head = "which is the head of a GPT-2 here: it has other values, or is "
                                           "rounded otherwise.\n       Convert the model again, with the "
                                           "two of one type",
                             .meant = meant_as_gguf};

}  // namespace formats
