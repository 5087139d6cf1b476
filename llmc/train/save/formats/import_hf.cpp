#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/dtype.h"
#include "llmc/base/files.h"
#include "llmc/base/json.h"
#include "llmc/base/json_value.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/format_hf.h"

static constexpr const char* kOwnHead = "lm_head.weight";

// ---------------------------------------------------------------------------------------------------------
// config.json

static Json json_of_file(const std::string& path) {
    try {
        return parse_json(read_file(path));
    } catch (const JsonError& e) {
        CHECK_INPUT(false, "{}: broken JSON: {}", path, e.what());
    }
}

// Keys that change what the model computes, each with the values that this program computes; a missing key
// stands for the first. Dropout, reorder_and_upcast_attn and n_ctx change no logit.
static void check_math(const Json& config, const std::string& path, int channels) {
    const struct { const char* key; std::vector<Json> values; } kMath[] = {
        {"model_type", {"gpt2"}},
        {"activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},       // one formula
        {"layer_norm_epsilon", {1e-5}},
        {"n_inner", {4 * channels, nullptr}},
        {"scale_attn_weights", {true}},
        {"scale_attn_by_inverse_layer_idx", {false}},
        {"tie_word_embeddings", {true}},
        {"add_cross_attention", {false}},
        {"pruned_heads", {Json::Members{}, nullptr}},
        {"quantization_config", {nullptr}},
        {"auto_map", {nullptr}}};                                                      // code of its own
    for (const auto& [key, values] : kMath) {
        const Json* found = config.find(key);
        bool known = !found;
        for (const Json& v : values) known = known || *found == v;
        CHECK_INPUT(known, "{}: {} is {}, expected {}: this program computes no other GPT-2", path,
                    key, for_message(*found), to_text(values[0]));
    }
}

static ModelConfig shape_of_config(const std::string& path) {
    const Json c = json_of_file(path);
    CHECK_INPUT(c.is_object(), "{}: no JSON object", path);
    const auto number = [&](const char* key) {
        const Json& v = c.get(key);
        CHECK_INPUT(v.is_natural() && v.natural() > 0 && v.natural() <= 1 << 24,
                    "{}: no '{}', or not a positive number", path, key);
        return int(v.natural());
    };
    const ModelConfig m = shape_by_keys(kHfKeys, path, number);
    check_math(c, path, m.channels);
    return m;
}

// ---------------------------------------------------------------------------------------------------------
// names

// The file's name without the prefix that newer files have.
static std::string without_prefix(const std::string& name) {
    return name.starts_with(kHfPrefix) ? name.substr(strlen(kHfPrefix)) : name;
}

// Causal masks that older files carry: constants, no parameters.
static bool is_mask(const std::string& name) {
    return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

static const TensorInfo* find_in_hf(const SafetensorsFile& file, const std::string& name) {
    const TensorInfo* info = file.find(kHfPrefix + name);
    return info ? info : file.find(name);
}

static void check_dtype(const SafetensorsFile& file, const TensorInfo& info) {
    for (const char* dtype : {"F32", "F16", "BF16", "F64"})
        if (info.dtype == dtype) return;
    CHECK_INPUT(false, "{}: tensor '{}' is {}, expected F32, F16, BF16 or F64", file.path,
                info.name, info.dtype);
}

// Every tensor of the model is there, once and of its shape, and every other is one that may be left out.
static void check_tensors(const SafetensorsFile& file, const ModelConfig& shape) {
    std::set<std::string> others;
    for (const TensorInfo& info : file.tensors)
        CHECK_INPUT(others.insert(without_prefix(info.name)).second, "{}: the tensor '{}' is there twice, "
                    "with '{}' in front and without", file.path, without_prefix(info.name),
                    kHfPrefix);
    ModelConfig one_layer = shape;
    one_layer.layers = 1;
    std::vector<Tensor> tensors = whole_tensors(make_dims(one_layer));
    for (int l = 0; l < shape.layers; l++)
        for (Tensor& t : tensors) {
            if (t.layer < 0 && l > 0) continue;
            if (t.layer >= 0) t.layer = l;
            const std::string name = hf_name(t);
            const TensorInfo* info = find_in_hf(file, name);
            CHECK_INPUT(info, "{}: there is no tensor '{}', nor '{}{}'; config.json says n_layer = {}",
                        file.path, name, kHfPrefix, name, shape.layers);
            check_dtype(file, *info);
            file.require(info->name, info->dtype, shape_in_hf(t));
            others.erase(name);
        }
    others.erase(kOwnHead);
    std::erase_if(others, is_mask);
    CHECK_INPUT(others.empty(), "{}: the tensor '{}'{} is no part of a GPT-2 with n_layer = {}, as "
                "config.json has it; without it the model would compute something else", file.path,
                others.begin()->c_str(),
                others.size() > 1 ? fmt::format(" (and {} more)", others.size() - 1).c_str() : "",
                shape.layers);
}

// ---------------------------------------------------------------------------------------------------------
// values

static float of_half(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float v = exponent == 31 ? (fraction ? NAN : INFINITY)
                  : exponent ? std::ldexp(float(1024 + fraction), exponent - 25)
                  : std::ldexp(float(fraction), -24);
    return h & 0x8000 ? -v : v;
}

struct half {
    uint16_t bits;
    operator float() const { return of_half(bits); }
};

template <class T>
static void read_as(const SafetensorsFile& file, const TensorInfo& info, size_t first, size_t count,
                    float* out) {
    std::vector<T> stored(count);
    file.read(info, stored.data(), first * sizeof(T), count * sizeof(T));
    std::copy(stored.begin(), stored.end(), out);
}

// Elements of a tensor in the order of the file.
static void read_elements(const SafetensorsFile& file, const TensorInfo& info, size_t first, size_t count,
                          float* out) {
    if (info.dtype == "F32") file.read(info, out, first * sizeof(float), count * sizeof(float));
    else if (info.dtype == "BF16") read_as<bfloat16>(file, info, first, count, out);
    else if (info.dtype == "F16") read_as<half>(file, info, first, count, out);
    else read_as<double>(file, info, first, count, out);
}

// Rows here are columns of a transposed matrix there: a stripe of each of its rows.
static void read_rows(const SafetensorsFile& file, const Tensor& t, size_t row, size_t rows, float* out) {
    const TensorInfo& info = *find_in_hf(file, hf_name(t));
    const size_t cols = size_t(t.param.whole_cols), whole = size_t(t.param.whole_rows);
    if (!transposed(t)) return read_elements(file, info, row * cols, rows * cols, out);
    std::vector<float> stripes(cols * rows);
    for (size_t c = 0; c < cols; c++) read_elements(file, info, c * whole + row, rows, &stripes[c * rows]);
    transpose(stripes.data(), cols, rows, out);
}

// ---------------------------------------------------------------------------------------------------------
// the folder

// pytorch_model.bin is a pickle, which only Python reads. clone(): the head shares its memory with the
// embedding, which save_file refuses.
static std::string how_to_convert(const std::string& dir) {
    return "       import torch; from safetensors.torch import save_file\n"
           "       save_file({k: v.clone().contiguous() for k, v in torch.load(" +
           json_string(dir + "/pytorch_model.bin") + ", map_location=\"cpu\").items()}, " +
           json_string(dir + "/model.safetensors") + ", {\"format\": \"pt\"})";
}

static void check_files(const std::string& dir) {
    const char* d = dir.c_str();
    CHECK_INPUT(is_directory(dir) || !file_exists(dir), "model.init = 'hf:{}' is a file. Expected its "
                "folder, hf:{}, with config.json beside", d, parent_directory(dir));
    CHECK_INPUT(is_directory(dir), "model.init = 'hf:{}': there is no such folder. Expected one with "
                "config.json and model.safetensors,\n       as this leaves: hf download "
                "openai-community/gpt2 --local-dir {}", d, d);
    const bool weights = file_exists(dir + "/model.safetensors");
    CHECK_INPUT(weights || !file_exists(dir + "/model.safetensors.index.json"), "model.init = 'hf:{}': the "
                "weights are in several files, which this version does not read; expected one, "
                "model.safetensors", d);
    CHECK_INPUT(weights || !file_exists(dir + "/pytorch_model.bin"), "model.init = 'hf:{}': there is no "
                "model.safetensors. These lines of Python make it from pytorch_model.bin:\n{}", d,
                how_to_convert(dir));
    for (const char* name : {"config.json", "model.safetensors"})
        CHECK_INPUT(file_exists(dir + "/" + name), "model.init = 'hf:{}': there is no {}. Expected a folder "
                    "of Hugging Face's GPT-2 with config.json and model.safetensors", d, name);
}

ForeignModel open_hf(const std::string& dir) {
    check_files(dir);
    ForeignModel m;
    m.shape = shape_of_config(dir + "/config.json");
    auto file = std::make_shared<SafetensorsFile>(dir + "/model.safetensors");
    check_tensors(*file, m.shape);
    if (file_exists(dir + "/tokenizer.json")) m.tokenizer = dir + "/tokenizer.json";
    else if (file_exists(dir + "/vocab.json") && file_exists(dir + "/merges.txt")) m.tokenizer = dir;
    m.read = [file](const Tensor& t, size_t row, size_t rows, float* out) {
        read_rows(*file, t, row, rows, out);
    };
    const TensorInfo* head = file->find(kOwnHead);
    if (!head) return m;
    check_dtype(*file, *head);
    file->require(kOwnHead, head->dtype, {m.shape.vocab, m.shape.channels});
    m.head = [file, head, C = size_t(m.shape.channels)](size_t row, size_t rows, float* out) {
        read_elements(*file, *head, row * C, rows * C, out);
    };
    return m;
}
