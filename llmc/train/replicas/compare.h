// Room train/replicas: what several ranks have, or compute, with equal bits: hashes of it, and who differs.
// Called by train/run. The room follows the places of Shards and runs micro-batches of Pipeline.
// It knows no formula of a layer, and changes no bit of training.
//
// Hashes of all ranks compared. Ranks of a group have equal hashes, unless memory, a processor or a message
// is at fault: two copies detect a difference, a majority of three or more attributes it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

inline namespace replicas {

// group: the number of those that have to agree; 0: this rank has nothing to compare.
struct CopyHash {
    uint64_t group = 0, hash = 0;
};

// Ranks that differ, ascending; none: all agree. sure: each of them differs from a majority; else they differ
// from each other. kind: the first kind of copy in which they do.
struct Suspects {
    std::vector<int> ranks = {};
    bool sure = true;
    size_t kind = 0;
    bool any() const { return !ranks.empty(); }
};

// hashes: (ranks, kinds). A rank that a majority of one kind contradicts explains differences of two copies.
// Groups of different kinds have nothing to do with each other.
Suspects compare(std::span<const CopyHash> hashes, size_t kinds);

}  // namespace replicas
