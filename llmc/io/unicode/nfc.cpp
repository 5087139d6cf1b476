#include "llmc/io/unicode/nfc.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "llmc/base/utf8.h"
#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/packed.h"
#include "llmc/io/unicode/unicode_table.h"

inline namespace unicode {

namespace {

constexpr uint32_t kSyllables = 0xac00, kSyllableCount = 11172;         // Hangul
constexpr uint32_t kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11a7;
constexpr uint32_t kVowelCount = 21, kTailCount = 28;

// REQUIRES: zeros before (a static object), so that pages without such characters cost nothing.
struct Tables {
    struct Parts { uint32_t first, second; };       // second 0: a single code point

    uint8_t combining[0x110000];
    bool may_change[0x110000];                      // can change or compose
    bool lead[256];                                 // first bytes of these characters
    std::unordered_map<uint32_t, Parts> parts;
    std::unordered_map<uint64_t, uint32_t> composed;

    Tables() {
        const auto changing = [&](uint32_t c) {
            char utf8[4];
            encode_utf8(c, utf8);
            lead[uint8_t(utf8[0])] = true;
            may_change[c] = true;
        };
        each_run(kCombiningRuns, 256, [&](uint32_t first, uint32_t end, uint32_t k) {
            for (uint32_t c = first; k && c < end; c++) {
                combining[c] = uint8_t(k);
                changing(c);
            }
        });
        each_decomposition(kDecompositions, [&](uint32_t c, uint32_t first, uint32_t second, bool composes) {
            parts.emplace(c, Parts{first, second});
            if (composes) composed.emplace(uint64_t(first) << 32 | second, c);
            changing(composes ? second : c);
        });
        for (uint32_t c = kVowels; c < kVowels + kVowelCount; c++) changing(c);
        for (uint32_t c = kTails + 1; c < kTails + kTailCount; c++) changing(c);
    }
    bool changes(Char c) const { return c.code < 0x110000 && may_change[c.code]; }
};

const Tables& tables() {
    static const Tables all;
    return all;
}

Char char_at(std::string_view text, size_t i) {
    return decode_utf8(reinterpret_cast<const uint8_t*>(text.data()) + i, text.size() - i);
}

void decompose(uint32_t code, std::vector<uint32_t>& codes) {
    if (code - kSyllables < kSyllableCount) {
        const uint32_t s = code - kSyllables, tail = s % kTailCount;
        codes.push_back(kLeads + s / (kVowelCount * kTailCount));
        codes.push_back(kVowels + s / kTailCount % kVowelCount);
        if (tail) codes.push_back(kTails + tail);
        return;
    }
    const auto found = tables().parts.find(code);
    if (found == tables().parts.end()) {
        codes.push_back(code);
        return;
    }
    decompose(found->second.first, codes);
    if (found->second.second) decompose(found->second.second, codes);
}

// The composition of two code points, or 0.
uint32_t compose(uint32_t first, uint32_t second) {
    const uint32_t lead = first - kLeads, vowel = second - kVowels;
    if (lead < 19 && vowel < kVowelCount) return kSyllables + (lead * kVowelCount + vowel) * kTailCount;
    const uint32_t syllable = first - kSyllables, tail = second - kTails;
    if (syllable < kSyllableCount && syllable % kTailCount == 0 && tail - 1 < kTailCount - 1)
        return first + tail;
    const auto found = tables().composed.find(uint64_t(first) << 32 | second);
    return found == tables().composed.end() ? 0 : found->second;
}

// Marks between two starters go by their classes, in the order of the text among equals.
void order_marks(std::vector<uint32_t>& codes) {
    const auto& combining = tables().combining;
    const auto starter = [&](uint32_t c) { return combining[c] == 0; };
    for (auto at = codes.begin(); at != codes.end();) {
        const auto begin = std::find_if_not(at, codes.end(), starter);
        at = std::find_if(begin, codes.end(), starter);
        std::stable_sort(begin, at,
                         [&](uint32_t a, uint32_t b) { return combining[a] < combining[b]; });
    }
}

// Each character joins the last starter, unless a character in between has the same or a higher class.
void compose_all(std::vector<uint32_t>& codes) {
    const auto& combining = tables().combining;
    size_t out = 0, starter = codes.size();
    int last = -1;                      // class of the previous character, -1: the starter
    for (const uint32_t c : std::vector<uint32_t>(codes)) {
        const int k = combining[c];
        const uint32_t both = starter < codes.size() && last < k ? compose(codes[starter], c) : 0;
        if (both) {
            codes[starter] = both;
            continue;
        }
        if (k == 0) starter = out;
        last = k == 0 ? -1 : k;
        codes[out++] = c;
    }
    codes.resize(out);
}

}  // namespace

bool is_surely_nfc(const char* text, size_t n) {
    const Tables& t = tables();
    size_t skip = 0;                    // no character begins before
    for (size_t i = 0; i < n; i += kBlock) {
        uint64_t high = Block(text + i).high();
        while (high) {
            const size_t at = i + size_t(std::countr_zero(high));
            high &= high - 1;
            if (at >= n) break;
            if (at < skip || !t.lead[uint8_t(text[at])]) continue;
            const Char c = char_at({text, n}, at);
            if (t.changes(c)) return false;
            skip = at + c.bytes;
        }
    }
    return true;
}

// Decomposes only characters that may change and their neighbours, up to a stable starter.
std::string nfc_of(std::string_view text) {
    const Tables& t = tables();
    std::string out;
    std::vector<uint32_t> codes;
    size_t copied = 0, stable = 0;      // `stable`: start of the last stable character
    for (size_t i = 0; i < text.size();) {
        Char c = char_at(text, i);
        if (!t.changes(c)) {
            stable = i;
            i += c.bytes;
            continue;
        }
        size_t begin = std::max(stable, copied);
        if (begin < i && char_at(text, begin).code == kInvalid) begin++;
        codes.clear();
        for (size_t at = begin; at < i;) {
            const Char before = char_at(text, at);
            decompose(before.code, codes);
            at += before.bytes;
        }
        for (; i < text.size() && t.changes(c = char_at(text, i)); i += c.bytes) decompose(c.code, codes);
        order_marks(codes);
        compose_all(codes);
        out += text.substr(copied, begin - copied);
        for (const uint32_t code : codes) {
            char utf8[4];
            out.append(utf8, size_t(encode_utf8(code, utf8)));
        }
        copied = stable = i;
    }
    return out += text.substr(copied);
}

}  // namespace unicode
