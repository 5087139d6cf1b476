#include "llmc/io/unicode/pretokenize.h"

#include <bit>
#include <cstring>

#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/unicode.h"

inline namespace unicode {

namespace {

struct Masks { uint64_t letter, number, space, blank, quote, high; };     // blank: U+0020; high: not ASCII

Masks classify(const uint8_t* s) {
    const Block c(reinterpret_cast<const char*>(s));
    const uint64_t blank = c.is(' ');
    return {c.with_bits(0x20).among('a', 26), c.among('0', 10), c.among('\t', 5) | blank, blank, c.is('\''),
            c.high()};
}

// Digits of SmolLM2 are Rust's numeric characters, of Unicode 17.0: 13 more than \p{N} of Unicode 16.0 has.
template <bool digits> CharClass class_here(uint32_t code) {
    const bool newer = (code >= 0x11de0 && code <= 0x11de9) || (code >= 0x16ff4 && code <= 0x16ff6);
    if (digits && newer) return kNumber;
    return class_of(code);
}

// Whether a run of spaces gives nothing back to what is at s: the end of the text, or of a span of it.
template <bool digits> bool keeps_spaces(const uint8_t* s, size_t n) {
    if (n == 0) return true;
    if (s[0] < 0x80) return is_ascii_space(s[0]) || (digits && uint8_t(s[0] - '0') < 10);
    const CharClass c = class_here<digits>(decode_utf8(s, n).code);
    return c == kSpace || (digits && c == kNumber);
}

// State passed from a block of 64 to the next.
struct Carry {
    uint64_t letter = 0, number = 0, other = 0, space = 0, blank = 0;     // of the last character: bit 0
    uint64_t tail = 0;                  // bytes of a character begun in the block before
    CharClass tail_class = kOther;
    uint64_t set = 0, clear = 0;        // starts, by a contraction
};

// Characters beyond ASCII: their class, for each of their bytes. `inner` gets every byte but the first of a
// character, `last_space` the spaces with another character behind.
template <bool digits>
void classify_high(const uint8_t* s, size_t n, Masks& m, uint64_t& inner, uint64_t& last_space,
                   Carry& carry) {
    uint64_t by_class[4] = {};
    by_class[carry.tail_class] = inner = carry.tail;
    uint64_t high = m.high & ~carry.tail;
    carry.tail = 0;
    while (high) {
        const int i = std::countr_zero(high);
        if (size_t(i) >= n) break;
        const Char c = decode_utf8(s + i, n - size_t(i));
        const CharClass k = class_here<digits>(c.code);
        const uint64_t bytes = (uint64_t(1) << c.bytes) - 1;
        by_class[k] |= bytes << i;
        inner |= (bytes - 1) << i;
        high &= ~(bytes << i);
        const size_t end = size_t(i) + c.bytes;
        if (k == kSpace && !keeps_spaces<digits>(s + end, n - end)) last_space |= uint64_t(1) << i;
        if (end > 64) {
            carry.tail = bytes >> (64 - i);
            carry.tail_class = k;
        }
    }
    m.letter |= by_class[kLetter];
    m.number |= by_class[kNumber];
    m.space |= by_class[kSpace];
}

// s points at the apostrophe, with n bytes left. Letters of the contraction, 0: no contraction.
int contraction(const uint8_t* s, size_t n) {
    if (n >= 2 && (s[1] == 's' || s[1] == 'd' || s[1] == 'm' || s[1] == 't')) return 1;
    if (n >= 3 && ((s[1] == 'l' && s[2] == 'l') || ((s[1] == 'v' || s[1] == 'r') && s[2] == 'e'))) return 2;
    return 0;
}

uint64_t contract(const uint8_t* s, size_t n, uint64_t starts, uint64_t quotes, Carry& carry) {
    for (; quotes; quotes &= quotes - 1) {
        const int i = std::countr_zero(quotes), letters = contraction(s + i, n - size_t(i));
        if (!letters) continue;
        const unsigned __int128 one = 1, after = one << (i + 1 + letters), first = one << (i + 1);
        starts = (starts & ~uint64_t(first)) | uint64_t(after);
        carry.clear |= uint64_t(first >> 64);
        carry.set |= uint64_t(after >> 64);
    }
    return starts;
}

// The starts among the 64 bytes at s; the text has n bytes left.
template <bool digits> inline uint64_t block_starts(const uint8_t* s, size_t n, Carry& carry) {
    Masks m = classify(s);
    const uint64_t valid = n >= 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1;
    uint64_t inner = 0, last = 0;
    m.high &= valid;
    m.letter &= valid;
    m.number &= valid;
    m.space |= ~valid;    // the end counts as space
    const uint64_t ascii_space = m.space;
    if (m.high | carry.tail) [[unlikely]] classify_high<digits>(s, n, m, inner, last, carry);

    const uint64_t other = ~(m.letter | m.number | m.space);
    const uint64_t keepers = m.space | (digits ? m.number : 0);
    const bool kept = n <= 64 || keeps_spaces<digits>(s + 64, n - 64);
    const uint64_t next_space = keepers >> 1 | uint64_t(kept) << 63;
    last |= ascii_space & ~next_space;

    const uint64_t after_blank = m.blank << 1 | carry.blank;
    const uint64_t in_number = digits ? 0 : m.number << 1 | carry.number;
    uint64_t starts = (m.letter & ~(m.letter << 1 | carry.letter)) | (m.number & ~in_number) |
                      (other & ~(other << 1 | carry.other));
    starts &= ~after_blank | (digits ? m.number : 0);
    starts |= m.space & (~(m.space << 1 | carry.space) | last);
    starts &= ~inner & valid;
    starts = (starts & ~carry.clear) | (carry.set & valid);
    carry.letter = m.letter >> 63;
    carry.number = m.number >> 63;
    carry.other = other >> 63;
    carry.space = m.space >> 63;
    carry.blank = m.blank >> 63;
    carry.set = carry.clear = 0;

    const uint64_t quotes = m.quote & starts & (m.letter >> 1 | uint64_t(1) << 63);
    if (quotes) [[unlikely]] starts = contract(s, n, starts, quotes, carry) & valid;
    return starts;
}

}  // namespace

template <bool digits> static void mark_all(const char* text, size_t n, uint64_t* starts) {
    const uint8_t* s = reinterpret_cast<const uint8_t*>(text);
    Carry carry;
    for (size_t i = 0; i < n; i += 64) *starts++ = block_starts<digits>(s + i, n - i, carry);
}

void mark_gpt2(const char* text, size_t n, uint64_t* starts) { mark_all<false>(text, n, starts); }
void mark_smollm(const char* text, size_t n, uint64_t* starts) { mark_all<true>(text, n, starts); }

}  // namespace unicode
