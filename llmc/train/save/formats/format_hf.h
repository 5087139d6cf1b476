// Hugging Face's GPT-2: a folder of model.safetensors, config.json and the tokenizer's files. The matrices of
// blocks are transposed there (Conv1D). format_hf.cpp has the names and the export, import_hf.cpp the import.
#pragma once
#include "llmc/train/save/formats/format.h"

inline constexpr const char* kHfPrefix = "transformer.";    // before the names of newer files
inline constexpr ShapeKeys kHfKeys = {.layers = "n_layer", .heads = "n_head", .channels = "n_embd",
                                      .context = "n_positions", .vocab = "vocab_size"};
std::string hf_name(const Tensor& t);                       // "h.3.attn.c_attn.weight"
std::vector<int64_t> shape_in_hf(const Tensor& t);
bool transposed(const Tensor& t);                           // Hugging Face keeps (in, out)
void transpose(const float* in, size_t rows, size_t cols, float* out);
ForeignModel open_hf(const std::string& dir);
