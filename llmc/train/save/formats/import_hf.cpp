// Reads a model from a folder of Hugging Face.
#include <cstring>
#include <memory>
#include <set>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_file.h"
#include "llmc/train/save/formats/format_hf.h"

inline namespace formats {

// ---------------------------------------------------------------------------------------------------------
// names

// The file's name without the prefix that newer files have.
static std::string without_prefix(const HfClass& c, const std::string& name) {
    return name.starts_with(c.prefix) ? name.substr(strlen(c.prefix)) : name;
}

// Causal masks and angles that older files carry: constants, no parameters.
static bool is_constant(const std::string& name) {
    if (name.ends_with(".rotary_emb.inv_freq")) return true;
    return name.starts_with("h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

static const HfWeights::Place* find_in_hf(const HfClass& c, const HfWeights& w, const std::string& name) {
    const HfWeights::Place* place = w.find(c.prefix + name);
    return place ? place : w.find(name);
}

// "_orig_mod.model.norm.weight", of a model that torch.compile() has wrapped, or "norm.weight".
static std::string like_it(const HfWeights& w, const std::string& name) {
    for (const auto& [other, place] : w.tensors) {
        if (other.ends_with("." + name))
            return fmt::format(". There is '{}': save the model without its wrapper (torch.compile, DDP), or "
                               "take '{}' off every name", other,
                               other.substr(0, other.size() - name.size()));
        if (name.ends_with("." + other))
            return fmt::format(". There is '{}': save the whole model, with its head", other);
    }
    return "";
}

// Every tensor of the model is there, once and of its shape, and every other is one that may be left out.
static void check_tensors(const HfClass& c, const HfWeights& w, const ModelConfig& m,
                          const std::string& dir) {
    std::set<std::string> others;
    for (const auto& [name, place] : w.tensors)
        CHECK_INPUT(others.insert(without_prefix(c, name)).second, "{}: the tensor '{}' is there twice, "
                    "with '{}' in front and without", place.file->path, without_prefix(c, name), c.prefix);
    const char* layers = c.kind.key_of("layers");
    for_each_foreign(c.kind, m, [&](const ForeignTensor& p, const Tensor& t) {
        const HfWeights::Place* place = find_in_hf(c, w, p.name);
        const std::string or_so = *c.prefix ? fmt::format(", nor '{}{}'", c.prefix, p.name) : "";
        CHECK_INPUT(place, "{}: there is no tensor '{}'{}{}; config.json says {} = {}", dir, p.name, or_so,
                    like_it(w, p.name), layers, m.layers);
        check_dtype(*place);
        place->file->require(place->info->name, place->info->dtype, shape_in_hf(c, p, t));
        others.erase(p.name);
    });
    others.erase(kHfHead);
    std::erase_if(others, is_constant);
    const std::string more = others.size() > 1 ? fmt::format(" (and {} more)", others.size() - 1) : "";
    CHECK_INPUT(others.empty(), "{}: the tensor '{}'{} is no part of a {} with {} = {}, as config.json has "
                "it; without it the model would compute something else", dir, *others.begin(), more,
                c.kind.name, layers, m.layers);
}

// Rows here are columns of a transposed matrix there: a stripe of each of its rows.
static void read_rows(const HfClass& c, const HfWeights::Place& from, const Tensor& t, size_t row,
                      size_t rows, float* out) {
    const size_t cols = size_t(t.param.whole_cols), whole = size_t(t.param.whole_rows);
    if (!transposed(c, t)) return read_elements(from, row * cols, rows * cols, out);
    std::vector<float> stripes(cols * rows);
    for (size_t i = 0; i < cols; i++) read_elements(from, i * whole + row, rows, &stripes[i * rows]);
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

static bool has_weights(const std::string& dir) {
    return file_exists(dir + "/model.safetensors.index.json") || file_exists(dir + "/model.safetensors");
}

static void check_files(const std::string& dir, Opens opens) {
    const char* d = dir.c_str();
    CHECK_INPUT(is_directory(dir) || !file_exists(dir), "model.init = 'hf:{}' is a file. Expected its "
                "folder, hf:{}, with config.json beside", d, parent_directory(dir));
    CHECK_INPUT(is_directory(dir), "model.init = 'hf:{}': there is no such folder. Expected one with "
                "config.json and model.safetensors,\n       as this leaves: hf download "
                "openai-community/gpt2 --local-dir {}", d, d);
    const bool weights = has_weights(dir) || (opens == Opens::Shape && file_exists(dir + "/config.json"));
    CHECK_INPUT(weights || !file_exists(dir + "/pytorch_model.bin"), "model.init = 'hf:{}': there is no "
                "model.safetensors. These lines of Python make it from pytorch_model.bin:\n{}", d,
                how_to_convert(dir));
    const std::pair<const char*, bool> needed[] = {
        {"config.json", file_exists(dir + "/config.json")}, {"model.safetensors", weights}};
    for (const auto& [name, there] : needed)
        CHECK_INPUT(there, "model.init = 'hf:{}': there is no {}. Expected a folder of Hugging Face with "
                    "config.json and model.safetensors", d, name);
}

ForeignModel open_hf(const std::string& dir, Opens opens) {
    check_files(dir, opens);
    const std::string path = dir + "/config.json";
    const Json config = parse_json_file(path);
    CHECK_INPUT(config.is_object(), "{}: no JSON object", path);
    const HfClass& c = hf_class_of(config, path);
    ForeignModel m;
    m.shape = hf_settings(c, config, path);
    if (file_exists(dir + "/tokenizer.json")) m.tokenizer = dir + "/tokenizer.json";
    else if (file_exists(dir + "/vocab.json") && file_exists(dir + "/merges.txt")) m.tokenizer = dir;
    if (opens == Opens::Shape && !has_weights(dir)) return m;
    auto weights = std::make_shared<HfWeights>(dir);
    check_tensors(c, *weights, m.shape, dir);
    const size_t D = size_t(with_sizes(m.shape).head_channels), C = size_t(m.shape.channels);
    m.read = [weights, &c, D](const Tensor& t, size_t row, size_t rows, float* out) {
        read_foreign_rows(foreign_tensors(c.kind.tensors, c.kind.blocks, t), t, D, row, rows, out,
                          [&](const ForeignTensor& p, size_t first, size_t count, float* to) {
            const HfWeights::Place& from = *find_in_hf(c, *weights, p.name);
            read_rows(c, from, t, first, count, to);
            check_finite(std::span<const float>(to, count * size_t(t.param.whole_cols)), from.file->path,
                         from.info->name);
        });
    };
    const HfWeights::Place* head = weights->find(kHfHead);
    if (!head || !m.shape.tied) return m;
    check_dtype(*head);
    head->file->require(kHfHead, head->info->dtype, {m.shape.vocab, m.shape.channels});
    m.head = [weights, head, C](size_t row, size_t rows, float* out) {
        read_elements(*head, row * C, rows * C, out);
        check_finite(std::span<const float>(out, rows * C), head->file->path, kHfHead);
    };
    return m;
}

}  // namespace formats
