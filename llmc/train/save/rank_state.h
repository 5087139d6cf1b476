// This rank's share of a checkpoint, and how a rank finds its share in the checkpoint of any mesh.
//
// Each array of the state ("weights" where they are no copy of the masters, and each slot of Zero) is written
// once over all ranks: a data-parallel rank writes its shard at every ZeRO stage, tensors that tensor
// parallelism does not cut are its first rank's, the tied embedding is the first pipeline stage's.
#pragma once
#include <span>

#include "llmc/base/config/config.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

// Whether the run only saves the random initial weights, as step_0 (train.steps=0).
inline bool saves_initial(const Config& cfg) {
    return cfg.train.steps == 0 && cfg.checkpoint.every > 0 && starts_random(cfg.model.init);
}
inline bool saves_async(const Config& cfg) { return cfg.checkpoint.every > 0 && cfg.checkpoint.async; }

struct RankShare {
    std::vector<SavedPiece> pieces;
    std::vector<size_t> start;           // of each, in its array
    uint64_t bytes = 0;

    // The memory of the pieces; after the arena's allocation.
    std::vector<std::span<const std::byte>> data(const Zero& zero) const;
};
RankShare share_to_save(const Zero& zero);

// Reads this rank's share of a checkpoint of any mesh. moments: also the optimizer's. A missing tensor or
// another shape ends in CHECK_INPUT; wpe may have more positions than needed.
void load_state(Zero& zero, const std::string& folder, const Manifest& m, bool moments);

}  // namespace PRECISION
