// GGUF as llama.cpp reads it. kinds_gguf.cpp has the table of architectures, rotary_gguf.cpp RoPE scaling;
// import_gguf.cpp reads a model and format_gguf.cpp writes one.
#pragma once
#include <map>

#include "llmc/io/files/gguf.h"
#include "llmc/train/save/formats/kind.h"

inline namespace formats {

inline constexpr const char* kHead = "output.weight";
inline constexpr const char* kRopeFreqs = "rope_freqs.weight";          // divisors of the angles
const std::vector<ForeignKind>& gguf_kinds();
std::vector<const ForeignKind*> kinds_of_gguf();

std::vector<uint64_t> shape_in_gguf(const ForeignTensor& p, const Tensor& t);

std::vector<float> divisors_of(const ModelConfig& m);       // what Llama 3's scaling divides each angle by
std::vector<GgufPair> scaling_pairs(const ForeignKind& kind, const ModelConfig& m);
// values: of the file's keys. REQUIRES: m has sizes and rope_theta.
RopeScaling scaling_of_gguf(const ForeignKind& kind, const GgufFile& file,
                            const std::map<std::string, Json>& values, const ModelConfig& m);

ForeignModel open_gguf(const std::string& path, Opens opens);

}  // namespace formats
