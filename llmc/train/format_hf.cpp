// Hugging Face's GPT-2: a folder of model.safetensors, config.json and the tokenizer's files. The matrices of
// blocks are transposed there (Conv1D).
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>

#include "llmc/base/check.h"
#include "llmc/base/dtype.h"
#include "llmc/base/files.h"
#include "llmc/base/json_value.h"
#include "llmc/io/safetensors.h"
#include "llmc/io/vocabulary.h"
#include "llmc/train/formats.h"

static bool transposed(const Tensor& t) { return t.layer >= 0 && t.param.whole_cols > 1; }

static std::string hf_name(const Tensor& t) {
    const std::string name = t.param.interchange;
    return t.layer < 0 ? name : "h." + std::to_string(t.layer) + "." + name;
}

static std::vector<int64_t> shape_in_hf(const Tensor& t) {
    if (t.param.whole_cols == 1) return {t.param.whole_rows};
    if (transposed(t)) return {t.param.whole_cols, t.param.whole_rows};
    return {t.param.whole_rows, t.param.whole_cols};
}

static std::vector<float> transpose(const std::vector<float>& in, size_t rows, size_t cols) {
    static constexpr size_t kTile = 32;
    std::vector<float> out(in.size());
    for (size_t r0 = 0; r0 < rows; r0 += kTile)
        for (size_t c0 = 0; c0 < cols; c0 += kTile)
            for (size_t r = r0; r < std::min(rows, r0 + kTile); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kTile); c++) out[c * rows + r] = in[r * cols + c];
    return out;
}

// ---------------------------------------------------------------------------------------------------------
// export

static std::string config_json(const OwnModel& m) {
    const ModelConfig& s = m.shape;
    const Json eot = m.tokenizer ? Json(m.tokenizer->eot()) : Json();
    return to_text(Json::Members{{"architectures", Json::List{"GPT2LMHeadModel"}}, {"model_type", "gpt2"},
                                 {"n_layer", s.layers}, {"n_head", s.heads}, {"n_embd", s.channels},
                                 {"n_positions", s.context}, {"n_ctx", s.context}, {"n_inner", nullptr},
                                 {"vocab_size", s.vocab}, {"activation_function", "gelu_new"},
                                 {"layer_norm_epsilon", 1e-5}, {"initializer_range", 0.02},
                                 {"scale_attn_weights", true}, {"tie_word_embeddings", true},
                                 {"use_cache", true}, {"attn_pdrop", 0.0}, {"embd_pdrop", 0.0},
                                 {"resid_pdrop", 0.0}, {"torch_dtype", "float32"}, {"bos_token_id", eot},
                                 {"eos_token_id", eot}}, 2) + "\n";
}

static void write_tokenizer(const OwnModel& m, const std::string& dir) {
    const Vocabulary& v = m.tokenizer->vocabulary;
    Json::Members vocab;
    std::vector<std::string> name(v.size());
    std::string merges = "#version: 0.2\n";
    for (uint32_t id = 0; id < v.size(); id++)
        name[id] = v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id));
    for (uint32_t id = 0; id < v.size(); id++) vocab.emplace_back(name[id], id);
    for (const Merge& x : v.merges) merges += name[x.left] + " " + name[x.right] + "\n";
    const Json config = Json::Members{{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", false},
                                      {"model_max_length", m.shape.context}, {"bos_token", kEndOfText},
                                      {"eos_token", kEndOfText}, {"unk_token", kEndOfText}};
    write_file(dir + "/tokenizer.json", json_of_vocabulary(v));
    write_file(dir + "/vocab.json", to_text(std::move(vocab)) + "\n");
    write_file(dir + "/merges.txt", merges);
    write_file(dir + "/tokenizer_config.json", to_text(config, 2) + "\n");
}

static void remove_file(const std::string& path) {
    CHECK_INPUT(unlink(path.c_str()) == 0 || errno == ENOENT, "%s: cannot be removed: %s", path.c_str(),
                strerror(errno));
}

void remove_hf(const std::string& dir, bool tokenizer) {
    remove_file(dir + "/config.json");
    remove_file(dir + "/model.safetensors");
    for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"})
        if (tokenizer) remove_file(dir + "/" + name);
}

void export_hf(const OwnModel& m, const std::string& dir) {
    make_directories(dir);
    remove_file(dir + "/config.json");          // of an earlier export
    std::vector<TensorInfo> infos;
    for (const Tensor& t : m.layout.tensors)
        infos.push_back({.name = "transformer." + hf_name(t), .dtype = "F32", .shape = shape_in_hf(t)});
    SafetensorsWriter file(dir + "/model.safetensors", infos, {{"format", "pt"}});
    for (const Tensor& t : m.layout.tensors) {
        std::vector<float> values = m.read(t);
        if (transposed(t)) values = transpose(values, size_t(t.param.whole_rows), size_t(t.param.whole_cols));
        file.write(values.data(), values.size() * sizeof(float));
    }
    file.close();
    if (m.tokenizer) write_tokenizer(m, dir);
    write_file(dir + "/config.json", config_json(m));
}

// ---------------------------------------------------------------------------------------------------------
// import

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
static std::vector<float> read_as(const SafetensorsFile& file, const TensorInfo& info, size_t count) {
    std::vector<T> stored(count);
    file.read(info, stored.data(), 0, count * sizeof(T));
    return {stored.begin(), stored.end()};
}

// The first rows of a tensor: positions beyond the context are left out.
static std::vector<float> read_tensor(const SafetensorsFile& file, const Tensor& t,
                                      const ModelConfig& shape) {
    const std::string name = hf_name(t);
    const TensorInfo* info = file.find("transformer." + name);
    if (!info) info = file.find(name);
    CHECK_INPUT(info, "%s: there is no tensor '%s', nor 'transformer.%s'", file.path.c_str(), name.c_str(),
                name.c_str());
    std::vector<int64_t> expected = shape_in_hf(t);
    if (name == "wpe.weight") expected[0] = shape.context;
    file.require(info->name, info->dtype, expected);
    const size_t count = t.param.whole();
    std::vector<float> values;
    if (info->dtype == "F32") values = read_as<float>(file, *info, count);
    else if (info->dtype == "BF16") values = read_as<bfloat16>(file, *info, count);
    else if (info->dtype == "F16") values = read_as<half>(file, *info, count);
    else if (info->dtype == "F64") values = read_as<double>(file, *info, count);
    else CHECK_INPUT(false, "%s: tensor '%s' is %s, expected F32, F16, BF16 or F64", file.path.c_str(),
                     info->name.c_str(), info->dtype.c_str());
    if (!transposed(t)) return values;
    return transpose(values, size_t(t.param.whole_cols), size_t(t.param.whole_rows));
}

static Json json_of_file(const std::string& path) {
    try {
        return parse_json(read_file(path));
    } catch (const JsonError& e) {
        CHECK_INPUT(false, "%s: broken JSON: %s", path.c_str(), e.what());
    }
}

static ModelConfig shape_of_config(const std::string& path) {
    const Json c = json_of_file(path);
    CHECK_INPUT(c.is_object(), "%s: no JSON object", path.c_str());
    const auto number = [&](const char* key) {
        const Json& v = c.get(key);
        CHECK_INPUT(v.is_natural() && v.natural() > 0 && v.natural() <= 1 << 24,
                    "%s: no '%s', or not a positive number", path.c_str(), key);
        return int(v.natural());
    };
    const auto has_to_be = [&](const char* key, const Json& value) {
        const Json* v = c.find(key);
        CHECK_INPUT(!v || *v == value, "%s: %s is %s; this program computes %s only", path.c_str(), key,
                    to_text(*v).c_str(), to_text(value).c_str());
    };
    has_to_be("model_type", "gpt2");
    if (!(c.get("activation_function") == "gelu_pytorch_tanh"))
        has_to_be("activation_function", "gelu_new");
    has_to_be("layer_norm_epsilon", 1e-5);
    has_to_be("scale_attn_weights", true);
    has_to_be("scale_attn_by_inverse_layer_idx", false);
    has_to_be("tie_word_embeddings", true);
    ModelConfig m;
    m.layers = number("n_layer"), m.heads = number("n_head"), m.channels = number("n_embd");
    m.context = number("n_positions"), m.vocab = number("vocab_size");
    if (!c.get("n_inner").is_null()) has_to_be("n_inner", 4 * m.channels);
    return m;
}

ForeignModel open_hf(const std::string& dir) {
    for (const char* name : {"config.json", "model.safetensors"})
        CHECK_INPUT(file_exists(dir + "/" + name), "model.init = 'hf:%s': there is no %s. Expected a folder "
                    "of Hugging Face's GPT-2 with config.json and model.safetensors", dir.c_str(), name);
    ForeignModel m;
    m.shape = shape_of_config(dir + "/config.json");
    auto file = std::make_shared<SafetensorsFile>(dir + "/model.safetensors");
    if (file_exists(dir + "/tokenizer.json")) m.tokenizer = dir + "/tokenizer.json";
    else if (file_exists(dir + "/vocab.json") && file_exists(dir + "/merges.txt")) m.tokenizer = dir;
    m.read = [file, shape = m.shape](const Tensor& t) { return read_tensor(*file, t, shape); };
    return m;
}
