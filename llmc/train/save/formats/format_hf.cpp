#include "llmc/train/save/formats/format_hf.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/json_value.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/io/text/vocabulary.h"

bool transposed(const Tensor& t) { return t.layer >= 0 && t.param.whole_cols > 1; }

static constexpr TensorName kHfNames[] = {
    {"wte", "wte.weight"}, {"wpe", "wpe.weight"}, {"ln1w", "ln_1.weight"}, {"ln1b", "ln_1.bias"},
    {"qkvw", "attn.c_attn.weight"}, {"qkvb", "attn.c_attn.bias"},
    {"attprojw", "attn.c_proj.weight"}, {"attprojb", "attn.c_proj.bias"},
    {"ln2w", "ln_2.weight"}, {"ln2b", "ln_2.bias"}, {"fcw", "mlp.c_fc.weight"}, {"fcb", "mlp.c_fc.bias"},
    {"fcprojw", "mlp.c_proj.weight"}, {"fcprojb", "mlp.c_proj.bias"},
    {"lnfw", "ln_f.weight"}, {"lnfb", "ln_f.bias"}};

std::string hf_name(const Tensor& t) { return foreign_name(kHfNames, "h.", t); }

std::vector<int64_t> shape_in_hf(const Tensor& t) {
    if (t.param.whole_cols == 1) return {t.param.whole_rows};
    if (transposed(t)) return {t.param.whole_cols, t.param.whole_rows};
    return {t.param.whole_rows, t.param.whole_cols};
}

void transpose(const float* in, size_t rows, size_t cols, float* out) {
    static constexpr size_t kTile = 32;
    for (size_t r0 = 0; r0 < rows; r0 += kTile)
        for (size_t c0 = 0; c0 < cols; c0 += kTile)
            for (size_t r = r0; r < std::min(rows, r0 + kTile); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kTile); c++) out[c * rows + r] = in[r * cols + c];
}

static std::string config_json(const OwnModel& m) {
    const ModelConfig& s = m.shape;
    const Json eot = m.tokenizer ? Json(m.tokenizer->eot()) : Json();
    return to_text(Json::Members{{"architectures", Json::List{"GPT2LMHeadModel"}}, {"model_type", "gpt2"},
                                 {kHfKeys.layers, s.layers}, {kHfKeys.heads, s.heads},
                                 {kHfKeys.channels, s.channels},
                                 {kHfKeys.context, s.context}, {"n_ctx", s.context}, {"n_inner", nullptr},
                                 {kHfKeys.vocab, s.vocab}, {"activation_function", "gelu_new"},
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
    CHECK_INPUT(unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot be removed: {}", path,
                strerror(errno));
}

// config.json first: without that file the folder holds no model.
static std::vector<std::string> files_of_hf(const std::string& dir, bool tokenizer) {
    std::vector<std::string> files = {dir + "/config.json", dir + "/model.safetensors"};
    const char* const more[] = {"/tokenizer.json", "/vocab.json", "/merges.txt", "/tokenizer_config.json"};
    if (tokenizer)
        for (const char* name : more) files.push_back(dir + name);
    return files;
}

static void write_hf(const OwnModel& m, const std::string& dir) {
    make_directories(dir);
    remove_file(dir + "/config.json");          // of an earlier export
    std::vector<TensorInfo> infos;
    for (const Tensor& t : m.layout.tensors)
        infos.push_back({.name = kHfPrefix + hf_name(t), .dtype = "F32", .shape = shape_in_hf(t)});
    SafetensorsWriter file(dir + "/model.safetensors", infos, {{"format", "pt"}});
    for (const Tensor& t : m.layout.tensors) {
        std::vector<float> values = m.read(t);
        if (transposed(t)) {
            const std::vector<float> own = values;
            transpose(own.data(), size_t(t.param.whole_rows), size_t(t.param.whole_cols), values.data());
        }
        file.write(values.data(), values.size() * sizeof(float));
    }
    file.close();
    if (m.tokenizer) write_tokenizer(m, dir);
    write_file(dir + "/config.json", config_json(m));
}

static std::string meant_as_hf(const std::string& path) {
    for (const char* name : {"/model.safetensors", "/pytorch_model.bin"})
        if (file_exists(path + name)) return "hf:" + path;
    if (path.ends_with(".safetensors")) return "hf:" + parent_directory(path);
    for (const char* suffix : {".pt", ".pth", ".ckpt", ".pkl"})
        if (path.ends_with(suffix)) return "hf:DIR, after save_pretrained(DIR) of transformers";
    const bool hub = path.starts_with("gpt2") || path.starts_with("openai-community/");
    return hub ? "hf:DIR, after hf download openai-community/gpt2 --local-dir DIR" : "";
}

extern const Format kHf = {.prefix = "hf", .place = "DIR", .meaning = "Hugging Face's GPT-2",
                           .imported = true, .writes_bf16 = false, .open = open_hf, .write = write_hf,
                           .files = files_of_hf, .meant = meant_as_hf};
