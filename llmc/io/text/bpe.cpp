#include "llmc/io/text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "llmc/base/check.h"

inline namespace text {

constexpr size_t kSlack = 4096;       // extra entries at the end: probing never wraps

Bpe::Bpe(const Vocabulary& v, size_t merges)
    : unknown(v.unknown), byte_rank(65536, kNoRank), byte_of(v.size(), -1), ends(v.size()) {
    memcpy(byte_id, v.byte_id, sizeof byte_id);
    for (int b = 0; b < 256; b++) {
        if (byte_id[b] == kNoByte) lacks_bytes = true;
        else byte_of[byte_id[b]] = int16_t(b);
    }
    for (uint32_t id = 0; id < v.size(); id++) {
        const std::string_view text = v.text_of(id);
        if (!text.empty()) ends[id] = {uint8_t(text.front()), uint8_t(text.back())};
    }
    const size_t size = std::bit_ceil(std::max<size_t>(merges * 2, 512));
    shift = 64 - std::countr_zero(size);
    entries = Table<uint64_t>(size + kSlack);
    merged.reserve(merges);
}

bool Bpe::add(Merge m) {
    const uint64_t key = uint64_t(m.left) << 20 | m.right;
    const uint64_t hash = hash_of(key);
    uint64_t i = hash >> shift;
    for (; entries[i]; i++) {
        if (entries[i] >> 24 == key) return false;
    }
    CHECK(i + 1 < entries.size, "the table of merges is too crowded at entry {}", i);
    entries[i] = key << 24 | (merged.size() + 1);
    filter[hash >> (64 - 13)] |= uint64_t(1) << (hash >> (64 - 19) & 63);
    const int left = byte_of[m.left], right = byte_of[m.right];
    if (left >= 0 && right >= 0) byte_rank[size_t(left << 8 | right)] = uint32_t(merged.size());
    const uint8_t before = ends[m.left].last, after = ends[m.right].first;
    joined[before << 2 | after >> 6] |= uint64_t(1) << (after & 63);
    merged.push_back(m.id);
    return true;
}

// In place, for words of a few dozen bytes. A symbol is a byte or what merges have made of several; symbol i
// keeps the place i of its first byte. Bits of `symbols` mark the remaining symbols. keys[i] has the rank of
// symbol i and the next symbol in its high bits, and the place i below. So the smallest key is the next
// merge; the search over a fixed number of places takes a few vector instructions.
template <size_t N> static size_t encode_short(const Bpe& bpe, std::string_view word, uint32_t* out) {
    constexpr uint32_t kNone = kNoRank << 6;
    const size_t n = word.size();
    uint32_t ids[N], keys[N];
    for (size_t i = 0; i < N; i++) keys[i] = kNone;
    for (size_t i = 0; i < n; i++) ids[i] = bpe.byte_id[uint8_t(word[i])];
    for (size_t i = 0; i + 1 < n; i++) {
        keys[i] = bpe.byte_rank[uint8_t(word[i]) << 8 | uint8_t(word[i + 1])] << 6 | uint32_t(i);
    }
    uint64_t symbols = ~uint64_t(0) >> (64 - n);
    for (;;) {
        uint32_t best = keys[0];
        for (size_t i = 1; i < N; i++) best = std::min(best, keys[i]);
        if (best >= kNone) break;
        const uint32_t at = best & 63;
        const uint64_t above = ~uint64_t(1) << at;              // places after `at`
        const uint64_t gone = (symbols & above) & -(symbols & above);
        symbols &= ~gone;
        keys[std::countr_zero(gone)] = kNone;
        ids[at] = bpe.merged[best >> 6];
        const uint64_t after = symbols & above, before = symbols & ~above & ~(uint64_t(1) << at);
        const int next = std::countr_zero(after | uint64_t(1) << 63);
        const int last = int(std::bit_width(before | 1)) - 1;
        keys[at] = after ? bpe.rank(ids[at], ids[next]) << 6 | at : kNone;
        if (before) keys[last] = bpe.rank(ids[last], ids[at]) << 6 | uint32_t(last);
    }
    size_t count = 0;
    for (uint64_t left = symbols; left; left &= left - 1) out[count++] = ids[std::countr_zero(left)];
    return count;
}

namespace {

// Finds the first place of the smallest key. A tree with nodes of 16 keys, a cache line.
struct SmallestKey {
    static constexpr size_t kNode = 16;
    std::vector<uint32_t> keys;         // the leaves, then the smallest key of each node, up to the root
    std::vector<size_t> level;          // where each level begins

    explicit SmallestKey(size_t n) {
        size_t all = 0;
        for (size_t size = 0; level.empty() || size > kNode; n = size / kNode) {
            size = (n + kNode - 1) / kNode * kNode;
            level.push_back(all);
            all += size;
        }
        keys.assign(all, kNoRank);
    }
    static uint32_t least_of(const uint32_t* node) {
        uint32_t least = node[0];
        for (size_t i = 1; i < kNode; i++) least = std::min(least, node[i]);
        return least;
    }
    void set(size_t i, uint32_t key) {
        keys[i] = key;
        for (size_t l = 0; l + 1 < level.size(); l++) {
            i /= kNode;
            const uint32_t least = least_of(&keys[level[l] + i * kNode]);
            if (std::exchange(keys[level[l + 1] + i], least) == least) return;
        }
    }
    size_t find() const {
        const uint32_t least = least_of(&keys[level.back()]);
        size_t i = 0;
        for (size_t l = level.size(); l-- > 0;)
            for (i *= kNode; keys[level[l] + i] != least;) i++;
        return i;
    }
};

}  // namespace

// For any length: O(n log n) steps, 8.4 bytes of memory a byte. As above, symbol i stays where its first byte
// is.
static size_t encode_long(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    const size_t n = word.size();
    SmallestKey ranks(n);               // rank of symbol i with the next symbol
    std::vector<uint64_t> symbols((n + 63) / 64, ~uint64_t(0));
    const auto next_symbol = [&](size_t i) {          // n: no next symbol
        size_t block = ++i / 64;
        if (block == symbols.size()) return n;
        uint64_t bits = symbols[block] & (~uint64_t(0) << i % 64);
        while (!bits && ++block < symbols.size()) bits = symbols[block];
        return bits ? std::min(n, block * 64 + size_t(std::countr_zero(bits))) : n;
    };
    const auto symbol_before = [&](size_t i) {        // of i > 0
        size_t block = --i / 64;
        uint64_t bits = symbols[block] & (~uint64_t(0) >> (63 - i % 64));
        while (!bits) bits = symbols[--block];
        return block * 64 + 63 - size_t(std::countl_zero(bits));
    };
    for (size_t i = 0; i < n; i++) {
        ids[i] = bpe.byte_id[uint8_t(word[i])];
        if (i + 1 < n) ranks.set(i, bpe.byte_rank[uint8_t(word[i]) << 8 | uint8_t(word[i + 1])]);
    }
    for (;;) {
        const size_t at = ranks.find();
        const uint32_t best = ranks.keys[at];
        if (best == kNoRank) break;
        const size_t gone = next_symbol(at);
        symbols[gone / 64] &= ~(uint64_t(1) << gone % 64);
        ranks.set(gone, kNoRank);
        ids[at] = bpe.merged[best];
        const size_t next = next_symbol(at), before = at ? symbol_before(at) : n;
        if (before < n) ranks.set(before, bpe.rank(ids[before], ids[at]));
        ranks.set(at, next < n ? bpe.rank(ids[at], ids[next]) : kNoRank);
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i = next_symbol(i)) ids[count++] = ids[i];
    return count;
}

// A word of one to three bytes: most characters of most scripts.
static size_t encode_character(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    const size_t n = word.size();
    const auto byte = [&](size_t i) { return uint8_t(word[i]); };
    const auto rank = [&](size_t i) { return bpe.byte_rank[size_t(byte(i) << 8 | byte(i + 1))]; };
    for (size_t i = 0; i < n; i++) ids[i] = bpe.byte_id[byte(i)];
    const uint32_t first = n > 1 ? rank(0) : kNoRank, second = n > 2 ? rank(1) : kNoRank;
    if (std::min(first, second) == kNoRank) return n;
    if (first <= second) {
        ids[0] = bpe.merged[first];
        ids[1] = ids[n - 1];
    } else ids[1] = bpe.merged[second];
    const uint32_t both = n > 2 ? bpe.rank(ids[0], ids[1]) : kNoRank;
    if (both == kNoRank) return n - 1;
    ids[0] = bpe.merged[both];
    return n - 2;
}

static size_t encode_span(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    const size_t n = word.size();
    if (n <= 3) return encode_character(bpe, word, ids);
    if (n <= 16) return encode_short<16>(bpe, word, ids);
    if (n <= 32) return encode_short<32>(bpe, word, ids);
    if (n <= 64) return encode_short<64>(bpe, word, ids);
    return encode_long(bpe, word, ids);
}

size_t span_end(const Bpe& bpe, std::string_view word, size_t begin) {
    size_t i = begin + 1;
    while (i < word.size() && bpe.joins(uint8_t(word[i - 1]), uint8_t(word[i]))) i++;
    return i;
}

size_t bpe_encode(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    const size_t n = word.size();
    if (n <= 8) return n ? encode_span(bpe, word, ids) : 0;
    size_t count = 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = span_end(bpe, word, begin);
        count += encode_span(bpe, word.substr(begin, end - begin), ids + count);
    }
    return count;
}

// A word where some bytes have no id.
static size_t encode_known(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    std::string known;
    size_t count = 0;
    const auto flush = [&] {
        count += bpe_encode(bpe, known, ids + count);
        known.clear();
    };
    for (const char c : word) {
        if (bpe.byte_id[uint8_t(c)] != kNoByte) known += c;
        else if (bpe.unknown >= 0) {
            flush();
            ids[count++] = uint32_t(bpe.unknown);
        }
    }
    flush();
    return count;
}

size_t encode_word(const Bpe& bpe, std::string_view word, uint32_t* ids) {
    if (!bpe.whole_words.empty()) {
        const auto found = bpe.whole_words.find(word);
        if (found != bpe.whole_words.end()) {
            ids[0] = found->second;
            return 1;
        }
    }
    return bpe.lacks_bytes ? encode_known(bpe, word, ids) : bpe_encode(bpe, word, ids);
}

void find_whole_words(Bpe& bpe, const Vocabulary& v) {
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < v.size(); id++) {
        const std::string_view word = v.text_of(id);
        if (v.added[id]) continue;
        ids.resize(std::max(ids.size(), word.size()));
        if (bpe_encode(bpe, word, ids.data()) != 1 || ids[0] != id) bpe.whole_words.emplace(word, id);
    }
}

bool merges_give_every_token(const Vocabulary& v) {
    Bpe bpe(v, v.merges.size());
    for (const Merge& m : v.merges) bpe.add(m);
    if (bpe.lacks_bytes) return false;
    find_whole_words(bpe, v);
    return bpe.whole_words.empty();
}

}  // namespace text
