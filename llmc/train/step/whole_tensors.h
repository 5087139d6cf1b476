// Whole tensors of the weights, from the ranks that own their elements: for exports, messages and tests. The
// same calls on every mesh, by all ranks together.
#pragma once
#include "llmc/train/step/shards.h"

namespace PRECISION::inline step {

inline constexpr size_t kExport = 65536;       // most elements that ranks exchange at once

// The elements of the whole tensor of t's name, of the masters if kept, on every rank.
std::vector<real> whole_tensor(const Shards& shards, const Tensor& t);
std::vector<float> whole_in_fp32(const Shards& shards, const Tensor& t);

// For a text or a score that cannot be computed: exit code 77 and the first tensor with NaN or infinity.
// what: was to be computed.
[[noreturn]] void end_not_finite(const Shards& shards, const std::string& what);

}  // namespace PRECISION::step
