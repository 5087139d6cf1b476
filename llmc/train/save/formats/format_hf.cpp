#include "llmc/train/save/formats/format_hf.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/base/json_value.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/io/text/tokenizer_pipeline.h"

bool transposed(const HfClass& c, const Tensor& t) {
    return c.transposed && t.layer >= 0 && t.param.whole_cols > 1;
}

std::vector<int64_t> shape_in_hf(const HfClass& c, const ForeignTensor& p, const Tensor& t) {
    const int64_t rows = int64_t(p.rows);
    if (t.param.whole_cols == 1) return {rows};
    if (transposed(c, t)) return {t.param.whole_cols, rows};
    return {rows, t.param.whole_cols};
}

void transpose(const float* in, size_t rows, size_t cols, float* out) {
    static constexpr size_t kTile = 32;
    for (size_t r0 = 0; r0 < rows; r0 += kTile)
        for (size_t c0 = 0; c0 < cols; c0 += kTile)
            for (size_t r = r0; r < std::min(rows, r0 + kTile); r++)
                for (size_t c = c0; c < std::min(cols, c0 + kTile); c++) out[c * rows + r] = in[r * cols + c];
}

static void remove_file(const std::string& path) {
    CHECK_INPUT(unlink(path.c_str()) == 0 || errno == ENOENT, "{}: cannot be removed: {}", path,
                strerror(errno));
}

// The files of GPT-2's tokenizer, from which Hugging Face's class makes its pattern and no other.
static void write_as_gpt2(const Vocabulary& v, const std::string& dir) {
    Json::Members vocab;
    std::vector<std::string> name(v.size());
    std::string merges = "#version: 0.2\n";
    for (uint32_t id = 0; id < v.size(); id++)
        name[id] = v.added[id] ? std::string(v.text_of(id)) : characters_of_bytes(v.text_of(id));
    for (uint32_t id = 0; id < v.size(); id++) vocab.emplace_back(name[id], id);
    for (const Merge& x : v.merges) merges += name[x.left] + " " + name[x.right] + "\n";
    write_file(dir + "/vocab.json", to_text(std::move(vocab)) + "\n");
    write_file(dir + "/merges.txt", merges);
}

static void write_tokenizer(const OwnModel& m, const std::string& dir) {
    const Vocabulary& v = m.tokenizer->vocabulary;
    const bool gpt2 = v.pattern == &patterns()[0] && !v.nfc && !v.ignore_merges && !v.adds_bos;
    const std::string_view end = v.text_of(v.eot);
    Json::Members config = {{"tokenizer_class", gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"},
                            {"add_prefix_space", false}, {"model_max_length", m.shape.context},
                            {"clean_up_tokenization_spaces", false}};
    Json::Members own = tokenizer_config(v);
    if (gpt2 && v.bos < 0) own.emplace_back("bos_token", end);
    if (v.eos < 0) own.emplace_back("eos_token", end);
    if (gpt2) own.emplace_back("unk_token", end);
    config.insert(config.end(), own.begin(), own.end());
    write_file(dir + "/tokenizer.json", json_of_vocabulary(v));
    if (gpt2) write_as_gpt2(v, dir);
    for (const char* name : {"/vocab.json", "/merges.txt"})
        if (!gpt2) remove_file(dir + name);                 // of an earlier export
    remove_file(dir + "/chat_template.jinja");              // it would go before that of the configuration
    write_file(dir + "/tokenizer_config.json", to_text(std::move(config), 2) + "\n");
}

// config.json first: without that file the folder holds no model.
static std::vector<std::string> files_of_hf(const std::string& dir, bool tokenizer) {
    std::vector<std::string> files = {dir + "/config.json", dir + "/model.safetensors"};
    const char* const more[] = {"/tokenizer.json", "/vocab.json", "/merges.txt", "/tokenizer_config.json"};
    if (tokenizer)
        for (const char* name : more) files.push_back(dir + name);
    return files;
}

static const HfClass& class_for(const ModelConfig& m) {
    for (const HfClass& c : hf_classes())
        if (in_the_way(m, c.kind).empty()) return c;
    fatal(kExitInternal, __FILE__, __LINE__, "no class of Hugging Face holds the model");
}

static std::string name_in_hf(const HfClass& c, const ForeignTensor& p) {
    return p.name == kHfHead ? p.name : c.prefix + p.name;
}

static void write_hf(const OwnModel& m, const std::string& dir) {
    const HfClass& c = class_for(m.shape);
    make_directories(dir);
    remove_file(dir + "/config.json");          // of an earlier export
    const auto parts = [&](const Tensor& t) { return foreign_tensors(c.kind.tensors, c.kind.blocks, t); };
    std::vector<TensorInfo> infos;
    for (const Tensor& t : m.layout.tensors)
        for (const ForeignTensor& p : parts(t))
            infos.push_back({.name = name_in_hf(c, p), .dtype = "F32", .shape = shape_in_hf(c, p, t)});
    SafetensorsWriter file(dir + "/model.safetensors", infos, {{"format", "pt"}});
    const size_t D = size_t(with_sizes(m.shape).head_channels);
    for (const Tensor& t : m.layout.tensors) {
        const std::vector<float> all = m.read(t);
        const size_t cols = size_t(t.param.whole_cols);
        for (const ForeignTensor& p : parts(t)) {
            std::vector<float> values = values_of_part(p, cols, D, all);
            if (transposed(c, t)) {
                const std::vector<float> own = values;
                transpose(own.data(), p.rows, cols, values.data());
            }
            file.write(values.data(), values.size() * sizeof(float));
        }
    }
    file.close();
    if (m.tokenizer) write_tokenizer(m, dir);
    write_file(dir + "/config.json", hf_config_json(c, m));
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

extern const Format kHf = {.prefix = "hf", .place = "DIR",
                           .meaning = "Hugging Face: GPT-2, Llama, Qwen3, NanoChat",
                           .imported = true, .writes_bf16 = false, .open = open_hf, .write = write_hf,
                           .round = nullptr,
                           .kinds = hf_kinds, .files = files_of_hf, .meant = meant_as_hf};
