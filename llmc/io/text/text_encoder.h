// The fast encoder: text to ids, with a cache of pre-tokens.
//
// A pre-token ("word") of up to 15 bytes (99% of English) is its own key: 16 bytes, zeros beyond the word,
// its length in the last byte. An entry holds the key and the ids, 32 bytes: a hit reads half a cache line
// and writes the ids with a single copy. Words are looked up in batches of 128: first keys, hashes and
// prefetches, then the lookups, so no lookup waits for memory. Longer words, and words with more ids than
// fit, are in a second table. A full cache is emptied, which bounds its memory.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "llmc/io/text/bpe.h"
#include "llmc/io/text/table.h"
#include "llmc/io/text/tokenizer.h"
#include "llmc/io/unicode/pretokenize.h"

inline namespace text {

// A vector whose new elements are uninitialized.
template <class Id> struct IdBuffer {
    std::unique_ptr<Id[]> data;
    size_t count = 0, capacity = 0;

    void reserve(size_t n) {
        if (n <= capacity) return;
        n += std::min<size_t>(n / 2, 1 << 20);      // a large buffer is allocated once
        auto bigger = std::make_unique_for_overwrite<Id[]>(n);
        std::copy(data.get(), data.get() + count, bigger.get());
        data = std::move(bigger);
        capacity = n;
    }
    void push(Id id) {
        reserve(count + 1);
        data[count++] = id;
    }
};

template <class Id>
struct Encoder {  // Id: uint16_t, where the vocabulary has at most 65536 ids, or uint32_t
    explicit Encoder(const Tokenizer& tokenizer);

    // Appends the ids of a text, or of a part of one behind Tokenizer::safe_cut() (begins = false). control:
    // names of control tokens become their ids. REQUIRES: kTextPadding more bytes are readable.
    void encode(const char* text, size_t n, IdBuffer<Id>& ids, bool begins = true, bool control = false);

   private:
    static constexpr size_t kInline = sizeof(Id) == 2 ? 7 : 3;
    struct alignas(32) Entry { uint64_t low, high; Id ids[kInline]; Id count; };      // count 0: empty
    struct LongEntry { uint64_t hash; uint32_t text, ids; uint16_t length, count; };    // count 0: empty

    Tokenizer tokenizer;
    Table<Entry> entries;
    Table<LongEntry> long_entries;
    size_t used = 0, long_used = 0;
    int shift;
    std::string long_text;                  // the words of long_entries, without separators
    std::vector<uint32_t> long_ids;         // and their ids
    std::vector<uint64_t> starts;
    std::vector<uint32_t> scratch;

    void encode_piece(const char* text, size_t n, IdBuffer<Id>& ids);
    void reset(int log2_entries);
    void insert(const Entry& e);
    Id* encode_words(const char* text, const uint32_t* at, size_t words, Id* out);
    Id* encode_new(const char* word, size_t n, Entry s, Id* out);
    Id* encode_long(std::string_view word, Id* out);
    Id* encode_spans(std::string_view word, Id* out);
    void add_long(std::string_view word, uint64_t hash, size_t count);
};

}  // namespace text
