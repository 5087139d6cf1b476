#include "llmc/train/save/formats/format_gguf.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <optional>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/config/config.h"
#include "llmc/base/json.h"
#include "llmc/base/json_file.h"
#include "llmc/io/files/gguf.h"
#include "llmc/io/text/tokenizer_gguf.h"

static constexpr const char* kRopeFreqs = "rope_freqs.weight";              // divisors of the angles
static constexpr const char* kScaling = "train_gpt.rope_scaling";       // the setting behind them, as JSON

static std::vector<const ForeignKind*> kinds_of_gguf() {
    std::vector<const ForeignKind*> kinds;
    for (const ForeignKind& kind : gguf_kinds()) kinds.push_back(&kind);
    return kinds;
}

static std::vector<uint64_t> shape_in_gguf(const ForeignTensor& p, const Tensor& t) {
    if (t.param.whole_cols == 1) return {p.rows};
    return {p.rows, uint64_t(t.param.whole_cols)};
}

// What Llama 3's scaling divides each angle by.
static std::vector<float> divisors_of(const ModelConfig& m) {
    const int D = with_sizes(m).head_channels;
    const RopeScaling& s = m.rope_scaling;
    std::vector<float> divisors;
    for (int i = 0; i < D / 2; i++) {
        const double rotations = s.context * std::pow(m.rope_theta, -2. * i / D) / (2 * std::numbers::pi);
        const double kept = std::clamp((rotations - s.low) / (s.high - s.low), 0., 1.);
        divisors.push_back(float(1 / ((1 - kept) / s.factor + kept)));
    }
    return divisors;
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

// 1e-5, not the double nearest to the FP32 nearest to 1e-5. JSON has no text for NaN and infinity.
static Json shortest(float x) {
    return std::isfinite(x) ? parse_json(fmt::format("{}", x)) : Json(double(x));
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
    const bool scaled = m.shape.rope_scaling.used;
    std::vector<GgufPair> pairs = {{"general.architecture", std::string(kind.id)},
                                   {"general.name", std::string("train_gpt")},
                                   {"general.file_type", file_type(type)}};
    for (const auto& [key, value] : keys_to_write(kind, m.shape))
        pairs.push_back({key, value_in_gguf(value)});
    if (scaled) pairs.push_back({kScaling, to_text(value_of_setting(m.shape, "rope_scaling"))});
    add_tokenizer(pairs, m.tokenizer, m.shape.vocab);
    std::vector<GgufTensor> infos;
    const auto foreign = [&](const Tensor& t) { return foreign_tensors(kind.tensors, kind.blocks, t); };
    for (const Tensor& t : m.layout.tensors)
        for (const ForeignTensor& p : foreign(t))
            infos.push_back({.name = p.name, .shape = shape_in_gguf(p, t), .type = type_of(t, type)});
    const std::vector<float> divisors = divisors_of(m.shape);
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

// ---------------------------------------------------------------------------------------------------------
// import

static std::map<std::string, Json> values_of(const GgufFile& file) {
    std::map<std::string, Json> values;
    for (const auto& [key, value] : file.pairs) {
        if (const uint32_t* n = std::get_if<uint32_t>(&value)) values[key] = Json(*n);
        if (const int32_t* n = std::get_if<int32_t>(&value)) values[key] = Json(int64_t(*n));
        if (const float* x = std::get_if<float>(&value)) values[key] = shortest(*x);
        if (const double* x = std::get_if<double>(&value)) values[key] = Json(*x);
        if (const std::string* text = std::get_if<std::string>(&value)) values[key] = Json(*text);
    }
    return values;
}

static const ForeignKind& kind_of(const std::map<std::string, Json>& values, const std::string& path) {
    const auto found = values.find("general.architecture");
    CHECK_INPUT(found != values.end(), "{}: no general.architecture", path);
    for (const ForeignKind& kind : gguf_kinds())
        if (found->second == Json(kind.id)) return kind;
    CHECK_INPUT(false, "{}: general.architecture is {}, expected one of {}: this program computes no other",
                path, for_message(found->second), list_of_ids(kinds_of_gguf()));
}

// The divisors do not say which setting they are of: the key does, else Llama 3's own low and high.
static void read_scaling(const GgufFile& file, const std::map<std::string, Json>& values, ModelConfig& m) {
    const GgufTensor* t = file.find(kRopeFreqs);
    if (!t) return;
    const size_t pairs = size_t(with_sizes(m).head_channels) / 2;
    CHECK_INPUT(t->shape == std::vector<uint64_t>{pairs} && t->type == GgufType::F32, "{}: {} is of another "
                "shape than the {} pairs of a head", file.path, kRopeFreqs, pairs);
    std::vector<float> found(pairs);
    file.read(*t, 0, pairs, found.data());
    const auto named = values.find(kScaling);
    const bool stated = named != values.end();
    const std::string where = file.path + ": " + (stated ? kScaling : kRopeFreqs);
    CHECK_INPUT(!stated || named->second.is_string(), "{} is {}, expected a text", where,
                for_message(named->second));
    ModelConfig by_largest;
    by_largest.rope_scaling = {.used = true,
                               .factor = double(*std::max_element(found.begin(), found.end()))};
    const Json form = stated ? parse_json_text(named->second.string(), where)
                             : value_of_setting(by_largest, "rope_scaling");
    const std::string as_config = to_text(Json::Members{{"model", Json::Members{{"rope_scaling", form}}}});
    m.rope_scaling = parse_config(as_config, where).model.rope_scaling;
    const std::vector<float> expected = divisors_of(m);
    for (size_t i = 0; i < pairs; i++)
        CHECK_INPUT(std::abs(found[i] - expected[i]) <= 1e-4f * expected[i], "{}: {} has {:g} for pair {}, "
                    "where Llama 3's scaling by {:g} has {:g}: this program computes no other", file.path,
                    kRopeFreqs,
                    found[i], i, m.rope_scaling.factor, expected[i]);
}

static void check_tensors(const ForeignKind& kind, const GgufFile& file, const ModelConfig& m) {
    std::set<std::string> others;
    for (const auto& [name, t] : file.tensors) others.insert(name);
    for_each_foreign(kind, m, [&](const ForeignTensor& p, const Tensor& t) {
        const GgufTensor* found = file.find(p.name);
        CHECK_INPUT(found, "{}: there is no tensor '{}'; the file says {} blocks", file.path, p.name,
                    m.layers);
        CHECK_INPUT(found->shape == shape_in_gguf(p, t), "{}: tensor '{}' has another shape than the {} x {} "
                    "of its keys", file.path, p.name, p.rows, t.param.whole_cols);
        others.erase(p.name);
    });
    if (m.tied) others.erase(kHead);
    if (m.rope_scaling.used) others.erase(kRopeFreqs);
    CHECK_INPUT(others.empty(), "{}: the tensor {} is no part of a {}; without it the model would compute "
                "something else", file.path, json_string(*others.begin()), kind.name);
}

// Keys that are written beside the key of a setting say the same of it: sizes of a head.
static void check_copies(const ForeignKind& kind, const ModelConfig& m, const std::string& path,
                         const std::function<const Json*(const std::string&)>& value) {
    for (const FormatKey& k : kind.keys) {
        const Json* found = k.use == FormatKey::Write && k.setting ? value(k.key) : nullptr;
        if (!found) continue;
        const Json expected = value_of_setting(with_sizes(m), k.setting);
        CHECK_INPUT(*found == expected, "{}: {} is {}, but {} is {}: this program computes with one size",
                    path, k.key, for_message(*found), kind.key_of(k.setting), to_text(expected));
    }
}

static ModelConfig settings_of_gguf(const ForeignKind& kind, const GgufFile& file,
                                    std::map<std::string, Json> values) {
    const GgufTensor* wte = file.find("token_embd.weight");
    if (wte && wte->shape.size() == 2) values.try_emplace(kind.key_of("vocab"), Json(wte->shape[0]));
    const auto value = [&](const std::string& key) -> const Json* {
        const auto found = values.find(key);
        return found == values.end() ? nullptr : &found->second;
    };
    return settings_of(kind, file.path, value, [&](ModelConfig& m) {
        if (kind.has_other("tied")) m.tied = !file.find(kHead);
        if (kind.has_other("rope_scaling")) read_scaling(file, values, m);
        check_copies(kind, m, file.path, value);
    });
}

static ForeignModel open_gguf(const std::string& path) {
    auto file = std::make_shared<GgufFile>(path);
    const std::map<std::string, Json> values = values_of(*file);
    const ForeignKind& kind = kind_of(values, path);
    ForeignModel m;
    m.shape = settings_of_gguf(kind, *file, values);
    check_tensors(kind, *file, m.shape);
    if (has_vocabulary(*file)) m.tokenizer = path;
    const size_t D = size_t(with_sizes(m.shape).head_channels), C = size_t(m.shape.channels);
    m.read = [file, &kind, D](const Tensor& t, size_t row, size_t rows, float* out) {
        const size_t cols = size_t(t.param.whole_cols);
        read_foreign_rows(foreign_tensors(kind.tensors, kind.blocks, t), t, D, row, rows, out,
                          [&](const ForeignTensor& p, size_t first, size_t count, float* to) {
            file->read(*file->find(p.name), first * cols, count * cols, to);
        });
    };
    const GgufTensor* head = file->find(kHead);
    if (!head || !m.shape.tied) return m;
    CHECK_INPUT(head->shape == file->find("token_embd.weight")->shape, "{}: {} has another shape than the "
                "embedding", path, kHead);
    m.head = [file, head, C](size_t row, size_t rows, float* out) {
        file->read(*head, row * C, rows * C, out);
    };
    return m;
}

static std::vector<std::string> files_of_gguf(const std::string& path, bool) { return {path}; }
static std::string meant_as_gguf(const std::string& path) {
    return path.ends_with(".gguf") ? "gguf:" + path : "";
}

extern const Format kGguf = {.prefix = "gguf", .place = "FILE",
                             .meaning = "llama.cpp; rounded as X-f16.gguf, X-bf16 or X-q8_0 say",
                             .writes_bf16 = false, .open = open_gguf, .write = write_gguf,
                             .round = round_as_gguf, .kinds = kinds_of_gguf, .files = files_of_gguf,
                             .head = kHead,
                             .other_head = "which is the head of a GPT-2 here: it has other values, or is "
                                           "rounded otherwise.\n       Convert the model again, with the "
                                           "two of one type",
                             .meant = meant_as_gguf};
