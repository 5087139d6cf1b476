// Hashes of the weights and the optimizer state of a rank, by who has to have the same:
//
//     tensors that tp cuts            ranks of dp: all, or where ZeRO shards them those of the same shard
//     tensors that tp leaves whole    these, over tp as well
//     a tied wte                      the first kind, of the first and the last pipeline stage
#pragma once
#include "llmc/train/replicas/compare.h"
#include "llmc/train/step/shards.h"

namespace PRECISION::inline replicas {

// XXH3 of memory of the host or the device; waits for the ops and copies before. seed: a hash to go on from.
uint64_t hash_of(const void* memory, size_t bytes, uint64_t seed = 0);

// Kinds of copies: those of the table above of the weights, then of each slot of the state.
size_t copy_kinds(const Shards& shards);
const char* name_of_copies(const Shards& shards, size_t kind);     // "weights", "master weights"
// This rank's, one of each kind. Padding is left out.
std::vector<CopyHash> hashes_of_state(const Shards& shards);

}  // namespace PRECISION::replicas
