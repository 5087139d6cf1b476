// Hugging Face's folders: config.json, model.safetensors or several files with an index, and the tokenizer's
// files. classes_hf.cpp has the table of classes, config_hf.cpp reads and writes config.json.
// rotary_hf.cpp does so for rotary positions. weights_hf.cpp opens the tensors, import_hf.cpp reads a model,
// and format_hf.cpp writes one.
#pragma once
#include <map>
#include <memory>

#include "llmc/io/files/safetensors.h"
#include "llmc/train/save/formats/kind.h"

inline namespace formats {

struct HfClass {
    ForeignKind kind;
    const char* prefix;         // written before each name but the head's; a file may leave it out
    bool transposed;            // matrices of blocks are (in, out) there (Conv1D)
};
const std::vector<HfClass>& hf_classes();
std::vector<const ForeignKind*> hf_kinds();

const HfClass& hf_class_of(const Json& config, const std::string& path);     // by model_type
ModelConfig hf_settings(const HfClass& c, const Json& config, const std::string& path);
std::string hf_config_json(const HfClass& c, const OwnModel& m, const char* dtype);    // of torch

void read_rotary_hf(const Json& config, const std::string& path, ModelConfig& m);     // REQUIRES: m's sizes
void add_rotary_hf(Json::Members& members, const ModelConfig& m);

inline constexpr const char* kHfHead = "lm_head.weight";
bool transposed(const HfClass& c, const Tensor& t);
std::vector<int64_t> shape_in_hf(const HfClass& c, const ForeignTensor& p, const Tensor& t);
void transpose(const float* in, size_t rows, size_t cols, float* out);

// Tensors of a folder, by name.
struct HfWeights {
    struct Place { const SafetensorsFile* file; const TensorInfo* info; };
    std::vector<std::unique_ptr<SafetensorsFile>> files;
    std::map<std::string, Place> tensors;

    explicit HfWeights(const std::string& dir);
    const Place* find(const std::string& name) const;       // nullptr: not there
};
// Elements of a tensor in the order of the file, as FP32.
void read_elements(const HfWeights::Place& from, size_t first, size_t count, float* out);
void check_dtype(const HfWeights::Place& tensor);

ForeignModel open_hf(const std::string& dir, Opens opens);

}  // namespace formats
