// Byte-pair encoding of a pre-token: joins the adjacent pair with the lowest rank, the leftmost among equals,
// until no merge applies.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/text/table.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

constexpr uint32_t kNoRank = (1 << 24) - 1;

// Maps pairs of ids to ranks: open addressing, 20 + 20 + 24 bits an entry. Most pairs do not merge: a filter
// of a bit per hash, 64 kB in the cache, spares nine tenths of the pairs a look at the table.
struct Bpe {
    Table<uint64_t> entries;                // left, right, rank + 1; 0: empty
    int shift;
    uint64_t nothing = 0;                   // an empty entry
    int64_t unknown;                        // id that a byte without an id becomes; -1: the byte is dropped
    uint64_t filter[8192] = {};
    std::vector<uint32_t> merged;           // by rank: the id that the pair becomes
    uint32_t byte_id[256];
    std::vector<uint32_t> byte_rank;        // by first << 8 | second: rank of two bytes, or kNoRank
    std::vector<int16_t> byte_of;           // by id: its byte; -1: several bytes
    struct Ends { uint8_t first, last; };
    std::vector<Ends> ends;                 // by id: its bytes at both ends
    uint64_t joined[1024] = {};             // bit first << 8 | second: some merge joins the two bytes
    bool lacks_bytes = false;               // some byte_id is kNoByte
    std::map<std::string, uint32_t, std::less<>> whole_words;   // by find_whole_words(): bytes -> id

    Bpe(const Vocabulary& v, size_t merges);        // no merges yet, but room for `merges`
    bool add(Merge m);                      // at the next rank; false: duplicate pair

    bool joins(uint8_t a, uint8_t b) const { return joined[a << 2 | b >> 6] >> (b & 63) & 1; }
    static uint64_t hash_of(uint64_t key) { return key * 0x9e3779b97f4a7c15; }
    uint32_t rank(uint32_t left, uint32_t right) const {
        const uint64_t key = uint64_t(left) << 20 | right, hash = hash_of(key);
        const bool maybe = filter[hash >> (64 - 13)] >> (hash >> (64 - 19) & 63) & 1;
        const uint64_t* entry = maybe ? entries.data + (hash >> shift) : &nothing;
        for (;; entry++) {
            if (*entry >> 24 == key || *entry == 0) return (uint32_t(*entry) - 1) & kNoRank;
        }
    }
};

// End of the span at `begin`. Two bytes that no merge joins belong to different spans, which are encoded
// separately. In scripts without spaces a span is often a character.
size_t span_end(const Bpe& bpe, std::string_view word, size_t begin);

// Writes the ids of `word` by merges, at most an id per byte; returns the number of ids. REQUIRES: each byte
// has an id.
size_t bpe_encode(const Bpe& bpe, std::string_view word, uint32_t* ids);

// The same for a whole pre-token of any bytes. A pre-token in `whole_words` becomes that token. Bytes without
// an id become `unknown` or are dropped; neighbours of a dropped byte may merge.
size_t encode_word(const Bpe& bpe, std::string_view word, uint32_t* ids);

// Fills whole_words, for a vocabulary with ignore_merges: tokens whose bytes the merges encode as other ids.
void find_whole_words(Bpe& bpe, const Vocabulary& v);
// Whether find_whole_words() finds no token: then ignore_merges changes no id.
bool merges_give_every_token(const Vocabulary& v);

}  // namespace text
