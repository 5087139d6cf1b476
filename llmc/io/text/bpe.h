// Byte-pair encoding of one pre-token: of all adjacent pairs that a merge joins, the one of the lowest rank
// is joined, the leftmost first among equals, until none is left.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "llmc/io/text/table.h"
#include "llmc/io/text/vocabulary.h"

constexpr uint32_t kNoRank = (1 << 24) - 1;

// Pairs of ids to ranks: open addressing, 20 + 20 + 24 bits a slot. Most pairs do not merge: a filter of one
// bit a hash, 64 kB that stay in the cache, spares nine tenths of them the table.
struct Bpe {
    Table<uint64_t> slots;                  // left, right, rank + 1; 0: empty
    int shift;
    uint64_t nothing = 0;                   // an empty slot
    uint64_t filter[8192] = {};
    std::vector<uint32_t> merged;           // of a rank: the id that the pair becomes
    uint32_t byte_id[256];
    std::vector<uint32_t> byte_rank;  // of two bytes: rank of their ids, kNoRank where they do not merge
    std::vector<int16_t> byte_of;           // of an id: its byte, -1 where it is no single one
    struct Ends { uint8_t first, last; };
    std::vector<Ends> ends;                 // of an id: its bytes at both ends
    uint64_t joined[1024] = {};             // bit first << 8 | second: some merge joins two such bytes

    Bpe(const Vocabulary& v, size_t merges);        // without merges yet, with room for so many
    bool add(Merge m);                      // at the next rank; false where the pair is there already

    bool joins(uint8_t a, uint8_t b) const { return joined[a << 2 | b >> 6] >> (b & 63) & 1; }
    static uint64_t hash_of(uint64_t key) { return key * 0x9e3779b97f4a7c15; }
    uint32_t rank(uint32_t left, uint32_t right) const {
        const uint64_t key = uint64_t(left) << 20 | right, hash = hash_of(key);
        const bool maybe = filter[hash >> (64 - 13)] >> (hash >> (64 - 19) & 63) & 1;
        const uint64_t* slot = maybe ? slots.data + (hash >> shift) : &nothing;
        for (;; slot++) {
            if (*slot >> 24 == key || *slot == 0) return (uint32_t(*slot) - 1) & kNoRank;
        }
    }
};

// The end of a part: two bytes that no merge joins are of two parts, each encoded on its own. In scripts
// without spaces a part is often a character.
size_t part_end(const Bpe& bpe, std::string_view word, size_t begin);

// Writes the ids of the pre-token, at most one a byte; returns how many.
size_t bpe_encode(const Bpe& bpe, std::string_view word, uint32_t* ids);
