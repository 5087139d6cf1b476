// Chooses a kernel for each op before the first step.
#pragma once
#include "llmc/train/run/run_memory.h"

namespace PRECISION::inline runs {

// Rank 0 reads run.dir/kernels.txt, else the choices of this user's earlier runs on such a GPU, among the
// same candidates, in ~/.cache/train_gpt/kernels_HASH.txt (or below XDG_CACHE_HOME). Without both, rank 0
// times the candidates (ops/backend_tuning.h) and writes both files. All ranks then use the same choices, and
// check their results. The file stays with the run, so that a resumed run ends in the same bits. Uses
// Model::tuning_bytes of memory for a while. REQUIRES: the model is not yet allocated.
void choose_kernels(const Config& cfg, const Model& model);

}  // namespace PRECISION::runs
