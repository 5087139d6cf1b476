// Which way ops go, found out before the first step.
#pragma once
#include "llmc/train/run/model.h"

namespace PRECISION {

// Rank 0 reads run.dir/kernels.txt; else what earlier runs of this user have chosen on such a GPU, in
// ~/.cache/train_gpt/kernels.txt (or below XDG_CACHE_HOME); else it times the ways that there are
// (ops/backend_tuning.h), and writes both. All ranks then do as it does, and try it. The file stays with the
// run: one that is gone on with ends in the same bits. Takes Model::tuning_bytes for a while: to be called
// before the model is allocated.
void choose_kernels(const Config& cfg, const Model& model);

}  // namespace PRECISION
