#include "llmc/train/save/formats/format_hf.h"

#include <filesystem>
#include <optional>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/json/json_value.h"
#include "llmc/io/files/gguf_blocks.h"
#include "llmc/io/files/safetensors.h"
#include "llmc/io/text/tokenizer_pipeline.h"

inline namespace formats {

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

// ---------------------------------------------------------------------------------------------------------
// numbers of 16 bits

// A folder's name says what its tensors are, as names of GGUF files do: "DIR-bf16", "DIR-fp16", "DIR-f16".
struct HfType {
    const char *suffix, *dtype, *torch;
    GgufType elements;

    bool rounds() const { return elements != GgufType::F32; }
};
static constexpr HfType kHfTypes[] = {{"", "F32", "float32", GgufType::F32},
                                      {"bf16", "BF16", "bfloat16", GgufType::BF16},
                                      {"fp16", "F16", "float16", GgufType::F16},
                                      {"f16", "F16", "float16", GgufType::F16}};

static const HfType& hf_type_named(std::string dir) {
    while (dir.ends_with('/')) dir.pop_back();
    for (char& c : dir) c = char(tolower(c));
    const size_t at = dir.find_last_of("/.-_");
    for (const HfType& type : kHfTypes)
        if (at != dir.npos && dir[at] != '/' && dir.substr(at + 1) == type.suffix) return type;
    return kHfTypes[0];
}

static bool round_as_hf(const std::string& dir, const Tensor&, std::vector<float>& values) {
    const HfType& type = hf_type_named(dir);
    if (!type.rounds()) return false;
    const std::vector<uint8_t> bytes = encode(type.elements, values.data(), values.size());
    decode(type.elements, bytes.data(), values.size(), values.data());
    return true;
}

// ---------------------------------------------------------------------------------------------------------
// files of tensors

static constexpr const char* kBy = "exported_by";           // metadata
static constexpr const char* kIndex = "/model.safetensors.index.json";

// Files of tensors, and their index, that an export may have left in the folder.
static std::vector<std::string> weight_files(const std::string& dir) {
    std::vector<std::string> files = {dir + kIndex, dir + "/model.safetensors"};
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
        const std::string name = entry.path().filename();
        if (name.starts_with("model-") && name.find("-of-") != name.npos && name.ends_with(".safetensors"))
            files.push_back(dir + "/" + name);
    }
    return files;
}

// Streams tensors in their order to files of `largest` bytes at most, or of one tensor.
struct HfWriter {
    std::string dir;
    const HfType& type;
    std::vector<std::vector<TensorInfo>> files = {{}};
    std::optional<SafetensorsWriter> file;
    size_t at = 0, written = 0;         // file, tensors of it

    HfWriter(const std::string& d, const HfType& t, const std::vector<TensorInfo>& infos, uint64_t largest)
        : dir(d), type(t) {
        uint64_t bytes = 0;
        for (const TensorInfo& info : infos) {
            const uint64_t more = bytes_of(info);
            if (bytes + more > largest && !files.back().empty()) {
                files.emplace_back();
                bytes = 0;
            }
            files.back().push_back(info);
            bytes += more;
        }
    }
    uint64_t bytes_of(const TensorInfo& info) const {
        uint64_t count = type.rounds() ? 2 : 4;
        for (const int64_t n : info.shape) count *= uint64_t(n);
        return count;
    }
    std::string name(size_t i) const {
        if (files.size() == 1) return "model.safetensors";
        return fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
    }
    void write(const std::vector<float>& values) {
        const SafetensorsMetadata metadata = {{"format", "pt"}, {kBy, kProgram}};
        if (!file) file.emplace(dir + "/" + name(at), files[at], metadata);
        if (type.rounds()) {
            const std::vector<uint8_t> bytes = encode(type.elements, values.data(), values.size());
            file->write(bytes.data(), bytes.size());
        } else file->write(values.data(), values.size() * sizeof(float));
        if (++written < files[at].size()) return;
        file->close();
        file.reset();
        at++;
        written = 0;
    }
    void write_index() const {
        uint64_t bytes = 0;
        Json::Members places;
        for (size_t i = 0; i < files.size(); i++)
            for (const TensorInfo& info : files[i]) {
                places.emplace_back(info.name, name(i));
                bytes += bytes_of(info);
            }
        Json::Members index = {{"metadata", Json::Members{{"total_size", bytes}}},
                               {"weight_map", std::move(places)}};
        if (files.size() > 1) write_file(dir + kIndex, to_text(std::move(index), 2) + "\n");
    }
};

// ---------------------------------------------------------------------------------------------------------
// the tokenizer

static constexpr const char* kTokenizerFiles[] = {"/tokenizer.json", "/vocab.json", "/merges.txt",
                                                  "/tokenizer_config.json", "/chat_template.jinja"};

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
    // Hugging Face's class for GPT-2 takes no more than vocabulary and merges from the files
    bool gpt2 = v.pattern == &patterns()[0] && !v.nfc && !v.ignore_merges && !v.adds_bos && !v.adds_eos;
    gpt2 = gpt2 && !v.prefix_space;
    for (const uint8_t bits : v.added) gpt2 = gpt2 && bits <= kAdded;
    const std::string_view end = v.text_of(v.eot);
    Json::Members config = {{"tokenizer_class", gpt2 ? "GPT2Tokenizer" : "PreTrainedTokenizerFast"},
                            {"add_prefix_space", v.prefix_space}, {"model_max_length", m.shape.context},
                            {"clean_up_tokenization_spaces", false}};
    Json::Members own = tokenizer_config(v);
    if (gpt2 && v.bos < 0) own.emplace_back("bos_token", end);
    if (v.eos < 0) own.emplace_back("eos_token", end);
    if (gpt2) own.emplace_back("unk_token", end);
    config.insert(config.end(), own.begin(), own.end());
    write_file(dir + "/tokenizer.json", json_of_vocabulary(v));
    if (gpt2) write_as_gpt2(v, dir);
    write_file(dir + "/tokenizer_config.json", to_text(std::move(config), 2) + "\n");
}

// ---------------------------------------------------------------------------------------------------------
// the folder

// config.json first: without that file the folder holds no model.
static std::vector<std::string> files_of_hf(const std::string& dir) {
    std::vector<std::string> files = weight_files(dir);
    files.insert(files.begin(), dir + "/config.json");
    for (const char* name : kTokenizerFiles) files.push_back(dir + name);
    return files;
}

static bool is_own_hf(const std::string& dir, const ModelConfig&) {
    bool any = false, all = true;
    for (const std::string& path : weight_files(dir)) {
        if (!path.ends_with(".safetensors") || !file_exists(path)) continue;
        const SafetensorsFile file(path);
        const auto by = file.metadata.find(kBy);
        any = true;
        all = all && by != file.metadata.end() && by->second == kProgram;
    }
    return any && all;
}

static std::string name_in_hf(const HfClass& c, const ForeignTensor& p) {
    return p.name == kHfHead ? p.name : c.prefix + p.name;
}

static void write_hf(const OwnModel& m, const std::string& dir) {
    const HfClass& c = hf_classes()[kind_for(m.shape, hf_kinds())];
    make_directories(dir);
    const HfType& type = hf_type_named(dir);
    const auto foreign = [&](const Tensor& t) { return foreign_tensors(c.kind.tensors, c.kind.blocks, t); };
    std::vector<TensorInfo> infos;
    for (const Tensor& t : m.layout.tensors)
        for (const ForeignTensor& p : foreign(t))
            infos.push_back({.name = name_in_hf(c, p), .dtype = type.dtype, .shape = shape_in_hf(c, p, t)});
    HfWriter file(dir, type, infos, m.largest_file);
    const size_t D = size_t(with_sizes(m.shape).head_channels);
    for (const Tensor& t : m.layout.tensors) {
        const std::vector<float> all = m.read(t);
        const size_t cols = size_t(t.param.whole_cols);
        for (const ForeignTensor& p : foreign(t)) {
            std::vector<float> values = foreign_values(p, cols, D, all);
            if (transposed(c, t)) {
                const std::vector<float> own = values;
                transpose(own.data(), p.rows, cols, values.data());
            }
            file.write(values);
        }
    }
    file.write_index();
    if (m.tokenizer) write_tokenizer(m, dir);
    write_file(dir + "/config.json", hf_config_json(c, m, type.torch));
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
                           .meaning = "Hugging Face; rounded as DIR-bf16 or DIR-f16 say",
                           .writes_bf16 = false, .open = open_hf, .write = write_hf, .round = round_as_hf,
                           .kinds = hf_kinds, .files = files_of_hf, .is_own = is_own_hf,
                           .head = kHfHead,
                           .other_head = "which it says is the head (tie_word_embeddings = true, or no word "
                                         "of it).\n       Set tie_word_embeddings to what the model is",
                           .meant = meant_as_hf};

}  // namespace formats
