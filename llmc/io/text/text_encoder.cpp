#include "llmc/io/text/text_encoder.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "llmc/base/check.h"

inline namespace text {

constexpr size_t kBatch = 128;              // words
constexpr size_t kMaxKey = 15;              // longest word that is its own key, in bytes
constexpr int kFirstEntries = 19, kMostEntries = 20;    // log2: 16 or 32 MB
constexpr size_t kProbeSlack = 4096;        // extra entries at the end: probing never wraps
constexpr size_t kLargeText = 16 << 20;     // bytes; memory of larger texts is given back
constexpr size_t kLongBytes = 16 << 20, kLongWord = 4096, kLongEntries = 1 << 16;

// Key of a word of n bytes, n <= 15. n = 16: every longer word; the shared entry of longer words is always in
// the table.
struct KeyMasks { uint64_t low[17], high[17]; };

static constexpr KeyMasks kMasks = [] {
    KeyMasks m = {};
    for (int n = 0; n <= 15; n++) {
        m.low[n] = n >= 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * n) - 1;
        m.high[n] = n <= 8 ? 0 : (uint64_t(1) << 8 * (n - 8)) - 1;
    }
    return m;
}();

static inline uint64_t load64(const char* p) { uint64_t v; memcpy(&v, p, 8); return v; }

static inline size_t hash_key(uint64_t low, uint64_t high, int shift) {
    return (low * 0x9e3779b97f4a7c15 + high * 0xc2b2ae3d27d4eb4f) >> shift;
}

template <class Id> Encoder<Id>::Encoder(const Tokenizer& t) : tokenizer(t) {
    const uint32_t vocab = tokenizer.vocab_size();
    CHECK(vocab <= (sizeof(Id) == 2 ? 65536u : kMaxVocabulary), "{} ids", vocab);
    long_entries = Table<LongEntry>(kLongEntries);
    long_text.reserve(kLongBytes + kLongWord);      // growth would copy; unwritten pages cost nothing
    long_ids.reserve(kLongBytes / 4);
    reset(kFirstEntries);
}

// Empty but for the vocabulary's own words.
template <class Id> void Encoder<Id>::reset(int log2_entries) {
    shift = 64 - log2_entries;
    entries = Table<Entry>((size_t(1) << log2_entries) + kProbeSlack);
    used = 0;
    insert({0, uint64_t(kMaxKey + 1) << 56, {}, Id(kInline + 1)});
    Entry ahead[32];         // their places are fetched while others are prepared
    size_t waiting = 0;
    const auto add = [&] {
        for (size_t i = 0; i < waiting; i++) insert(ahead[i]);
        waiting = 0;
    };
    const Vocabulary& v = tokenizer.vocabulary;
    for (uint32_t id = 0; v.words_are_tokens && id < v.size(); id++) {
        const std::string_view word = v.text_of(id);
        if (v.added[id] || word.size() > kMaxKey) continue;
        Entry e = {0, 0, {Id(id)}, 1};
        memcpy(&e.low, word.data(), std::min<size_t>(word.size(), 8));
        if (word.size() > 8) memcpy(&e.high, word.data() + 8, word.size() - 8);
        e.high |= uint64_t(word.size()) << 56;
        __builtin_prefetch(&entries[hash_key(e.low, e.high, shift)]);
        ahead[waiting++] = e;
        if (waiting == std::size(ahead)) add();
    }
    add();
}

template <class Id> void Encoder<Id>::insert(const Entry& e) {
    const size_t size = entries.size - kProbeSlack;
    if (used > size / 4 * 3) {
        const int bits = std::countr_zero(size);
        if (bits == kMostEntries) {
            reset(bits);
        } else {
            Table<Entry> old(2 * size + kProbeSlack);
            old.swap(entries);
            shift--;
            used = 0;
            for (const Entry& o : old) if (o.count) insert(o);
        }
    }
    size_t i = hash_key(e.low, e.high, shift);
    while (entries[i].count) i++;
    CHECK(i + 1 < entries.size, "the cache of words is too crowded at entry {} of {}", i, entries.size);
    entries[i] = e;
    used++;
}

template <class Id>
void Encoder<Id>::encode(const char* text, size_t n, IdBuffer<Id>& ids, bool begins, bool control) {
    CHECK(n < 0xffffffff, "a text of {} bytes at once", n);
    tokenizer.added->split({text, n}, control, [&](std::string_view piece) {
        const bool spaced = tokenizer.vocabulary.prefix_space && begins && piece[0] != ' ';
        begins = true;                              // the next piece follows an added token
        if (!spaced) return encode_piece(piece.data(), piece.size(), ids);
        encode_piece(with_prefix_space(piece).data(), piece.size() + 1, ids);
    }, [&](uint32_t id) {
        ids.push(Id(id));
        begins = true;
    });
}

// A text in the tokenizer's normal form, without added tokens.
template <class Id> void Encoder<Id>::encode_piece(const char* text, size_t n, IdBuffer<Id>& ids) {
    CHECK(n < 0xffffffff, "a text of {} bytes at once", n);
    ids.reserve(ids.count + n + kInline + 1);       // at most an id per byte; copies write a few more
    Id* out = ids.data.get() + ids.count;
    starts.resize((n + 63) / 64);
    tokenizer.vocabulary.pattern->mark_starts(text, n, starts.data());

    uint32_t at[kBatch + 64 + 8];
    size_t have = 0;
    for (size_t block = 0; block < starts.size(); block++) {
        uint64_t bits = starts[block];
        const int count = std::popcount(bits);
        uint32_t* next = at + have;
        for (int done = 0; done < count; done += 8) {       // eight at a time: few branches to mispredict
            for (int k = 0; k < 8; k++, bits &= bits - 1)
                next[done + k] = uint32_t(block * 64) + uint32_t(std::countr_zero(bits));
        }
        have += size_t(count);
        if (have > kBatch) {
            out = encode_words(text, at, have - 1, out);
            at[0] = at[have - 1];
            have = 1;
        }
    }
    at[have] = uint32_t(n);
    out = encode_words(text, at, have, out);
    ids.count = size_t(out - ids.data.get());
    if (starts.size() > kLargeText / 64) starts = {};
}

// Word i is text[at[i] .. at[i + 1]).
template <class Id>
Id* Encoder<Id>::encode_words(const char* text, const uint32_t* at, size_t words, Id* out) {
    uint64_t low[kBatch + 64], high[kBatch + 64];
    uint32_t where[kBatch + 64];
    for (size_t i = 0; i < words; i++) {
        const char* word = text + at[i];
        const size_t n = std::min<size_t>(at[i + 1] - at[i], kMaxKey + 1);
        low[i] = load64(word) & kMasks.low[n];
        high[i] = (load64(word + 8) & kMasks.high[n]) | uint64_t(n) << 56;
        where[i] = uint32_t(hash_key(low[i], high[i], shift));
        __builtin_prefetch(&entries[where[i]]);
    }
    const int hashed = shift;
    for (size_t i = 0; i < words; i++) {
        if (shift != hashed) [[unlikely]] where[i] = uint32_t(hash_key(low[i], high[i], shift));
        const Entry* e = &entries[where[i]];
        while (((e->low ^ low[i]) | (e->high ^ high[i])) && e->count) e++;
        memcpy(out, e->ids, sizeof e->ids + sizeof e->count);
        const size_t count = e->count;
        if (count - 1 < kInline) [[likely]] {
            out += count;
        } else {
            const size_t n = at[i + 1] - at[i];
            out = count ? encode_long({text + at[i], n}, out)
                        : encode_new(text + at[i], n, {low[i], high[i], {}, 0}, out);
        }
    }
    return out;
}

// A word of at most 15 bytes, missing from the cache.
template <class Id> Id* Encoder<Id>::encode_new(const char* word, size_t n, Entry e, Id* out) {
    uint32_t ids[kMaxKey];
    const size_t count = encode_word(*tokenizer.bpe, {word, n}, ids);
    if (count == 0) return out;
    e.count = Id(std::min(count, kInline + 1));
    for (size_t i = 0; i < count; i++) out[i] = Id(ids[i]);
    for (size_t i = 0; i < count && count <= kInline; i++) e.ids[i] = Id(ids[i]);
    insert(e);
    return out + count;
}

template <class Id> Id* Encoder<Id>::encode_long(std::string_view word, Id* out) {
    const uint64_t hash = XXH3_64bits(word.data(), word.size());
    for (size_t i = hash & (kLongEntries - 1); long_entries[i].count; i = (i + 1) & (kLongEntries - 1)) {
        const LongEntry& e = long_entries[i];
        if (e.hash != hash || e.length != word.size() ||
            memcmp(long_text.data() + e.text, word.data(), word.size())) continue;
        for (size_t k = 0; k < e.count; k++) out[k] = Id(long_ids[e.ids + k]);
        return out + e.count;
    }
    if (word.size() > kLongWord && !tokenizer.bpe->lacks_bytes) return encode_spans(word, out);
    scratch.resize(word.size());
    const size_t count = encode_word(*tokenizer.bpe, word, scratch.data());
    for (size_t k = 0; k < count; k++) out[k] = Id(scratch[k]);
    if (count && word.size() <= kLongWord) add_long(word, hash, count);
    return out + count;
}

// Holds memory for a single span, and only while needed.
template <class Id> Id* Encoder<Id>::encode_spans(std::string_view word, Id* out) {
    std::vector<uint32_t> ids;
    for (size_t begin = 0, end; begin < word.size(); begin = end) {
        end = span_end(*tokenizer.bpe, word, begin);
        if (ids.size() < end - begin) ids = std::vector<uint32_t>(end - begin);
        const size_t count = bpe_encode(*tokenizer.bpe, word.substr(begin, end - begin), ids.data());
        for (size_t k = 0; k < count; k++) *out++ = Id(ids[k]);
    }
    return out;
}

template <class Id> void Encoder<Id>::add_long(std::string_view word, uint64_t hash, size_t count) {
    if (long_used > kLongEntries / 2 || long_text.size() > kLongBytes) {
        long_entries = Table<LongEntry>(kLongEntries);
        long_text.clear();
        long_ids.clear();
        long_used = 0;
    }
    size_t i = hash & (kLongEntries - 1);
    while (long_entries[i].count) i = (i + 1) & (kLongEntries - 1);
    long_entries[i] = {hash, uint32_t(long_text.size()), uint32_t(long_ids.size()), uint16_t(word.size()),
                       uint16_t(count)};
    long_text += word;
    long_ids.insert(long_ids.end(), scratch.begin(), scratch.begin() + std::ptrdiff_t(count));
    long_used++;
}

template struct Encoder<uint16_t>;
template struct Encoder<uint32_t>;

}  // namespace text
