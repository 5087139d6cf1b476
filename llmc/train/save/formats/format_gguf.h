// GGUF as llama.cpp reads it. kinds_gguf.cpp has the table of architectures; import_gguf.cpp reads a model
// and format_gguf.cpp writes one.
#pragma once
#include "llmc/train/save/formats/kind.h"

inline namespace formats {

inline constexpr const char* kHead = "output.weight";
inline constexpr const char* kRopeFreqs = "rope_freqs.weight";          // divisors of the angles
inline constexpr const char* kScaling = "train_gpt.rope_scaling";       // the setting behind them, as JSON
const std::vector<ForeignKind>& gguf_kinds();
std::vector<const ForeignKind*> kinds_of_gguf();

std::vector<uint64_t> shape_in_gguf(const ForeignTensor& p, const Tensor& t);
std::vector<float> divisors_of(const ModelConfig& m);       // what Llama 3's scaling divides each angle by

ForeignModel open_gguf(const std::string& path, Opens opens);

}  // namespace formats
