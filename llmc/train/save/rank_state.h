// This rank's share of a checkpoint. state_source.h reads it back, on any mesh.
//
// Each array of the state ("weights" unless a copy of the masters, and each slot of Shards) is written once
// over all ranks. A data-parallel rank writes its shard, at every ZeRO stage. The first rank of tp writes
// tensors that tensor parallelism does not cut, the first pipeline stage the tied embedding.
#pragma once
#include <span>

#include "llmc/base/config/config.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline saves {

// Whether the run only saves the random initial weights, as step_0 (train.steps=0).
inline bool saves_initial(const Config& cfg) {
    return cfg.train.steps == 0 && cfg.checkpoint.every > 0 && starts_random(cfg.model.init);
}
inline bool saves_async(const Config& cfg) { return cfg.checkpoint.every > 0 && cfg.checkpoint.async; }

struct RankShare {
    std::vector<SavedPiece> pieces;
    std::vector<size_t> start;           // of each piece: its first element in the array
    std::vector<bool> on_host;           // of each piece: a save reads it where it lies
    uint64_t bytes = 0, offloaded = 0;   // offloaded: of pieces in the host's memory

    // The memory of each piece. REQUIRES: the arena is allocated.
    std::vector<std::span<const std::byte>> data(const Shards& shards) const;
};
RankShare share_to_save(const Shards& shards);

std::vector<int64_t> saved_shape(const Param& p);       // of the whole tensor

}  // namespace PRECISION::saves
