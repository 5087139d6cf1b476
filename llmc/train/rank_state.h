// What a checkpoint holds of this rank, and how a rank finds what it needs in one.
//
// Each part of the state ("weights" where they are no copy of the masters, "master", "m", "v") is written
// once over all ranks: a data-parallel rank writes its shard at every ZeRO stage, tensors that tensor
// parallelism does not cut are its first rank's, the tied embedding is the first pipeline stage's.
#pragma once
#include <span>

#include "llmc/io/manifest.h"
#include "llmc/train/zero.h"

namespace PRECISION {

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
