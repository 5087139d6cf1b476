// What a checkpoint holds of this rank, and how a rank finds what it needs in one.
//
// Each part of the state ("weights" where they are no copy of the masters, and each slot of Zero) is written
// once over all ranks: a data-parallel rank writes its shard at every ZeRO stage, tensors that tensor
// parallelism does not cut are its first rank's, the tied embedding is the first pipeline stage's.
#pragma once
#include <span>

#include "llmc/base/config/config.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/step/zero.h"

namespace PRECISION {

// The random weights that a run would begin with, as step_0: train.steps=0 trains nothing else.
inline bool saves_initial(const Config& cfg) {
    return cfg.train.steps == 0 && cfg.checkpoint.every > 0 && cfg.model.init == "random";
}
inline bool saves_async(const Config& cfg) { return cfg.checkpoint.every > 0 && cfg.checkpoint.async; }

struct RankShare {
    std::vector<SavedPiece> pieces;
    std::vector<size_t> start;           // of each, in the array of its part
    uint64_t bytes = 0;

    // Where the pieces lie; after the arena's allocation.
    std::vector<std::span<const std::byte>> data(const Zero& zero) const;
};
RankShare share_to_save(const Zero& zero);

// Reads this rank's part of a checkpoint of any mesh. moments: the optimizer's as well. A tensor that is
// missing or of another shape ends in CHECK_INPUT; of wpe, more positions than needed may be there.
void load_state(Zero& zero, const std::string& folder, const Manifest& m, bool moments);

}  // namespace PRECISION
