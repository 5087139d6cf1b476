// Reads a model from a GGUF file.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/io/files/gguf.h"
#include "llmc/io/text/tokenizer_gguf.h"
#include "llmc/train/save/formats/format_gguf.h"

inline namespace formats {

// 1e-5, not the double nearest to the FP32 nearest to 1e-5. JSON has no text for NaN and infinity.
static Json shortest(float x) {
    return std::isfinite(x) ? parse_json(fmt::format("{}", x)) : Json(double(x));
}

// A list of numbers has a value for each layer. Equal values are one value.
static Json value_of_list(const std::vector<int32_t>& list, const std::string& key, const std::string& path) {
    CHECK_INPUT(!list.empty(), "{}: {} is a list, and not of integers; expected one value for all layers",
                path, key);
    for (const int32_t n : list)
        CHECK_INPUT(n == list[0], "{}: {} has a value for each layer, {} and {} among them: this program "
                    "computes every layer with the same sizes", path, key, list[0], n);
    return list[0] < 0 ? Json(int64_t(list[0])) : Json(uint64_t(list[0]));
}

// Lists of the tokenizer are left out.
static std::map<std::string, Json> values_of(const GgufFile& file) {
    std::map<std::string, Json> values;
    for (const auto& [key, value] : file.pairs) {
        if (const uint32_t* n = std::get_if<uint32_t>(&value)) values[key] = Json(*n);
        if (const int32_t* n = std::get_if<int32_t>(&value)) values[key] = Json(int64_t(*n));
        if (const float* x = std::get_if<float>(&value)) values[key] = shortest(*x);
        if (const double* x = std::get_if<double>(&value)) values[key] = Json(*x);
        if (const bool* b = std::get_if<bool>(&value)) values[key] = Json(*b);
        if (const std::string* text = std::get_if<std::string>(&value)) values[key] = Json(*text);
        const auto* list = std::get_if<std::vector<int32_t>>(&value);
        if (list && !key.starts_with("tokenizer.")) values[key] = value_of_list(*list, key, file.path);
    }
    return values;
}

// A key of the architecture that this program does not know may change what llama.cpp computes.
static void check_known(const ForeignKind& kind, const std::map<std::string, Json>& values,
                        const std::string& path) {
    for (const auto& entry : values) {
        const auto& key = entry.first;
        if (!key.starts_with(kind.id + std::string("."))) continue;
        const bool known = std::any_of(kind.keys.begin(), kind.keys.end(),
                                       [&](const FormatKey& k) { return key == k.key; });
        CHECK_INPUT(known, "{}: the key {} = {} is unknown to this program, and may change what the model "
                    "computes", path, key, for_message(entry.second));
    }
}

static const ForeignKind& kind_of(const std::map<std::string, Json>& values, const std::string& path) {
    const auto found = values.find("general.architecture");
    CHECK_INPUT(found != values.end(), "{}: no general.architecture", path);
    const auto parts = values.find("split.count");
    const bool whole = parts == values.end() || parts->second == Json(0) || parts->second == Json(1);
    CHECK_INPUT(whole, "{}: one of {} parts of a model; llama-gguf-split --merge makes one file", path,
                for_message(parts->second));
    for (const ForeignKind& kind : gguf_kinds())
        if (found->second == Json(kind.id)) return kind;
    CHECK_INPUT(false, "{}: general.architecture is {}, expected one of {}: this program computes no other",
                path, for_message(found->second), list_of_ids(kinds_of_gguf()));
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
    if (m.rope_scaling.kind == RopeScalingKind::Llama3) others.erase(kRopeFreqs);
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
        check_known(kind, values, file.path);
        if (kind.has_other("tied")) m.tied = !file.find(kHead);
        if (kind.has_other("rope_scaling")) m.rope_scaling = scaling_of_gguf(kind, file, values, m);
        check_copies(kind, m, file.path, value);
    });
}

ForeignModel open_gguf(const std::string& path, Opens) {
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
            check_finite(std::span<const float>(to, count * cols), file->path, p.name);
        });
    };
    const GgufTensor* head = file->find(kHead);
    if (!head || !m.shape.tied) return m;
    CHECK_INPUT(head->shape == file->find("token_embd.weight")->shape, "{}: {} has another shape than the "
                "embedding", path, kHead);
    m.head = [file, head, C](size_t row, size_t rows, float* out) {
        file->read(*head, row * C, rows * C, out);
        check_finite(std::span<const float>(out, rows * C), file->path, kHead);
    };
    return m;
}

}  // namespace formats
