// Sizes of a model that the kernels for GPUs take, as rules between settings.
#pragma once
#include <string>

#include "llmc/base/config/model_config.h"

namespace PRECISION {

// Why GPUs cannot compute the model, with the setting to change; empty: they can. REQUIRES: tp divides
// heads and ffn_channels.
std::string wrong_on_gpus(const ModelConfig& settings, int tp);

}  // namespace PRECISION
