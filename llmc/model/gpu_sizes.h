// Sizes of a model that the kernels for GPUs support, as rules between settings.
#pragma once
#include <string>

#include "llmc/base/config/model_config.h"
#include "llmc/ops/walk.h"

inline namespace model {

// Whether the ffn_channels of a rank of tp are a multiple of `unit`, which is Target::product_unit().
inline bool ffn_fits(const ModelConfig& settings, int tp, int unit) {
    return with_sizes(settings).ffn_channels % (unit * tp) == 0;
}

}  // namespace model

namespace PRECISION::inline model {

// Why GPUs cannot compute the model, with the setting to change; empty: they can. REQUIRES: tp divides
// heads and ffn_channels.
std::string wrong_on_gpus(const ModelConfig& settings, int tp);

}  // namespace PRECISION::model
