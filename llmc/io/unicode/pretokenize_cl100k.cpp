// Pre-tokenization of cl100k's family: the matches, from left to right, of
//
//     Llama 3, Qwen:  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+; nanochat likewise
//     o200k:          [^\r\n\p{L}\p{N}]?U*L+(?i:'s|...)?|[^\r\n\p{L}\p{N}]?U+L*(?i:'s|...)?
//                     with U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]
//     all:            |\p{N}{1,3} (Qwen: \p{N}, nanochat: \p{N}{1,2})
//                     | ?[^\s\p{L}\p{N}]+[\r\n]* (o200k: [\r\n/]*)|\s*[\r\n]+|\s+(?!\S)|\s+
//
// A word is a run of letters (o200k: and marks), a gap is white space but \r and \n, a tail is what a run of
// other characters takes of line ends (o200k: and slashes) behind it. A match starts at
//
//     a number:  the first of a run, then each third (Qwen: each; nanochat: each second)
//     other:     the first of a run that follows no U+0020
//     a word:    its first letter, unless a gap comes before, or an other character that starts a match
//                o200k, too: where the case goes from lower to upper, see split_at_upper
//     a space:   the first of a run without its tail; a gap after the run's last line end; the last of a run
//                that ends in a gap, unless the text ends
//
// and contractions change what follows an apostrophe, as for GPT-2; those of o200k follow a word.
#include <bit>

#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/pretokenize.h"
#include "llmc/io/unicode/unicode.h"

inline namespace unicode {
namespace cl100k {

struct WordKind { bool cased; int group; };     // cased: o200k's words; group: digits of a match

// Of each byte; `inner` has every byte but the first of a character, `given` the spaces that end a run.
struct WordMasks {
    uint64_t word, upper, lower, mark, number, space, newline, blank, quote, slash, inner, given;
};

// State passed from a block of 64 to the next: of its last character, in bit 0.
struct WordCarry {
    uint64_t word = 0, lower = 0, caseless = 0, number = 0, other = 0, space = 0, gap = 0, newline = 0;
    uint64_t blank = 0, tail = 0, prefix = 0;
    uint64_t rest = 0;                  // bytes of a character begun in the block before
    LetterClass rest_class = kNoLetter;
    int digits = 0;                     // of the match that the last number belongs to
    bool in_lower = false;              // the match of the last character has a lower-case letter
    uint64_t set = 0, clear = 0;        // starts, by a contraction
};

static uint64_t after(uint64_t mask, uint64_t carry) { return mask << 1 | carry; }

template <WordKind kind> static LetterClass class_here(Char c) {
    return kind.cased ? letter_class_of(c.code) : LetterClass(class_of(c));
}

template <WordKind kind>
static void classify_high(const uint8_t* s, size_t n, uint64_t high, WordMasks& m, WordCarry& carry) {
    uint64_t by_class[8] = {};
    by_class[carry.rest_class] = m.inner = carry.rest;
    high &= ~carry.rest;
    carry.rest = 0;
    while (high) {
        const int i = std::countr_zero(high);
        if (size_t(i) >= n) break;
        const Char c = decode_utf8(s + i, n - size_t(i));
        const LetterClass k = class_here<kind>(c);
        const uint64_t bytes = (uint64_t(1) << c.bytes) - 1;
        by_class[k] |= bytes << i;
        m.inner |= (bytes - 1) << i;
        high &= ~(bytes << i);
        const size_t end = size_t(i) + c.bytes;
        if (k == kGap && class_at(s + end, n - end) != kSpace) m.given |= uint64_t(1) << i;
        if (end > 64) {
            carry.rest = bytes >> (64 - i);
            carry.rest_class = k;
        }
    }
    m.upper |= by_class[kUpper];
    m.lower |= by_class[kLower];
    m.mark |= by_class[kMark];
    m.word |= by_class[kCaseless] | by_class[kUpper] | by_class[kLower] | by_class[kMark];
    m.number |= by_class[kDigit];
    m.space |= by_class[kGap];
}

template <WordKind kind>
static WordMasks classify(const uint8_t* s, size_t n, uint64_t valid, WordCarry& carry) {
    const Block c(reinterpret_cast<const char*>(s));
    WordMasks m = {};
    m.blank = c.is(' ') & valid;
    m.newline = (c.is('\r') | c.is('\n')) & valid;
    m.space = (c.among('\t', 5) & valid) | m.blank | ~valid;        // the end counts as space
    m.number = c.among('0', 10) & valid;
    m.quote = c.is('\'') & valid;
    if (kind.cased) {
        m.lower = c.among('a', 26) & valid;
        m.upper = c.among('A', 26) & valid;
        m.slash = c.is('/') & valid;
        m.word = m.lower | m.upper;
    } else {
        m.word = c.with_bits(0x20).among('a', 26) & valid;
    }
    const uint64_t high = c.high() & valid, ascii_gap = m.space & ~m.newline;
    if (high | carry.rest) [[unlikely]] classify_high<kind>(s, n, high, m, carry);
    const bool space_next = n <= 64 || class_at(s + 64, n - 64) == kSpace;
    m.given |= ascii_gap & ~(m.space >> 1 | uint64_t(space_next) << 63);
    return m;
}

// What runs of other characters take of line ends and slashes behind them.
template <WordKind kind> static uint64_t tails(const WordMasks& m, uint64_t other, const WordCarry& carry) {
    const uint64_t may = m.newline | m.slash;
    uint64_t begin = (m.newline & after(other, carry.other)) | (may & carry.tail);
    if (!kind.cased) return may & ~(may + begin);
    uint64_t tail = 0;
    while (begin) {             // a slash in a tail takes no line end of its own
        tail |= may & ~(may + (begin & -begin));
        begin &= ~tail;
    }
    return tail;
}

// o200k: a mark after another character belongs to a word, if that character starts a match; otherwise to the
// run of other characters.
template <WordKind kind> static void take_marks(WordMasks& m, uint64_t& other, WordCarry& carry) {
    uint64_t marks = m.mark & ~m.inner & after(other, carry.other);
    for (; marks; marks &= marks - 1) {
        const uint64_t bit = marks & -marks, tail = tails<kind>(m, other, carry);
        if (after(tail, carry.tail) & bit) continue;
        const uint64_t below = ~m.inner & (bit - 1);
        const int last = 63 - std::countl_zero(below | 1);          // where the character before begins
        const uint64_t no_start = after(other & ~tail, carry.other) | after(m.blank, carry.blank);
        if (below ? !(no_start >> last & 1) : carry.prefix != 0) continue;
        const uint64_t run = m.mark & ~(m.mark + bit);
        m.mark &= ~run;
        m.word &= ~run;
        other |= run;
        if (run >> 63 && carry.rest) carry.rest_class = kNoLetter;
    }
}

// Whether only gaps lie between s, with n bytes left, and a line end.
static bool line_ends(const uint8_t* s, size_t n) {
    for (size_t i = 0; i < n;) {
        if (s[i] == '\r' || s[i] == '\n') return true;
        const Char c = decode_utf8(s + i, n - i);
        if (class_of(c) != kSpace) return false;
        i += c.bytes;
    }
    return false;
}

// Of gaps after a line end, those with no further line end in the run of white space.
static uint64_t last_lines(const uint8_t* s, size_t n, uint64_t gap, uint64_t newline, uint64_t fresh,
                    const WordCarry& carry) {
    const uint64_t sum = gap + fresh;
    if (sum >= gap && !(sum & ~gap & newline)) return fresh;
    uint64_t kept = 0;
    for (; fresh; fresh &= fresh - 1) {
        const uint64_t bit = fresh & -fresh, to = gap + bit;
        const size_t rest = size_t(std::popcount(carry.rest));
        const bool ends = to < gap ? n > 64 + rest && line_ends(s + 64 + rest, n - 64 - rest)
                                   : (to & ~gap & newline) != 0;
        if (!ends) kept |= bit;
    }
    return kept;
}

template <WordKind kind> static uint64_t number_starts(const WordMasks& m, WordCarry& carry) {
    const uint64_t first = m.number & ~m.inner;
    if (kind.group == 1) return first;
    const uint64_t inside = after(m.number, carry.number);
    uint64_t starts = 0;
    for (uint64_t left = first; left; left &= left - 1) {
        const uint64_t bit = left & -left;
        carry.digits = inside & bit && carry.digits < kind.group ? carry.digits + 1 : 1;
        if (carry.digits == 1) starts |= bit;
    }
    return starts;
}

// s points at the apostrophe, with n bytes left. Bytes of the letters of the contraction, 0: none.
static size_t contraction(const uint8_t* s, size_t n) {
    const auto letter = [&](size_t i) { return i < n ? s[i] | 0x20 : 0; };
    const int a = letter(1), b = letter(2);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1;
    if ((a == 'l' && b == 'l') || ((a == 'v' || a == 'r') && b == 'e')) return 2;
    return n > 2 && s[1] == 0xc5 && s[2] == 0xbf ? 2 : 0;       // U+017F, a long s
}

// Starts by contractions. `ended`: where a contraction ended; there, o200k's next apostrophe is no suffix.
template <WordKind kind>
static uint64_t contract(const uint8_t* s, size_t n, uint64_t starts, uint64_t quotes, uint64_t ended,
                  WordCarry& carry) {
    for (; quotes; quotes &= quotes - 1) {
        const int i = std::countr_zero(quotes);
        const size_t letters = contraction(s + i, n - size_t(i));
        if (!letters || (kind.cased && ended >> i & 1)) continue;
        const unsigned __int128 one = 1, end = one << (size_t(i) + 1 + letters);
        const unsigned __int128 inside = end - (one << (kind.cased ? i : i + 1));
        starts = (starts & ~uint64_t(inside)) | uint64_t(end);
        ended |= uint64_t(end);
        carry.clear |= uint64_t(inside >> 64);
        carry.set |= uint64_t(end >> 64);
    }
    return starts;
}

// Whether a letter, with upper-case letters from s on, is followed by more of a word.
static bool word_goes_on(const uint8_t* s, size_t n) {
    for (size_t i = 0; i < n;) {
        const Char c = decode_utf8(s + i, n - i);
        const LetterClass k = letter_class_of(c.code);
        if (k != kUpper) return k == kLower || k == kCaseless || k == kMark;
        i += c.bytes;
    }
    return false;
}

// U*L+ takes letters without case as either. After one of them an upper-case letter starts a match if a
// lower-case letter came before in the match, or if the word ends in upper case.
static uint64_t split_at_upper(const uint8_t* s, size_t n, const WordMasks& m, uint64_t starts,
                               uint64_t uppers, const WordCarry& carry) {
    for (uppers &= ~starts; uppers; uppers &= uppers - 1) {
        const int i = std::countr_zero(uppers);
        const uint64_t below = (uint64_t(1) << i) - 1;
        const size_t start = std::bit_width(starts & below), lower = std::bit_width(m.lower & below);
        const bool in_lower = start | lower ? lower >= start && lower : carry.in_lower;
        if (in_lower || !word_goes_on(s + i, n - size_t(i))) starts |= uint64_t(1) << i;
    }
    return starts;
}

// The starts among the 64 bytes at s; the text has n bytes left.
template <WordKind kind> static inline uint64_t block_starts(const uint8_t* s, size_t n, WordCarry& carry) {
    const uint64_t valid = n >= 64 ? ~uint64_t(0) : (uint64_t(1) << n) - 1;
    WordMasks m = classify<kind>(s, n, valid, carry);
    uint64_t other = ~(m.word | m.number | m.space);
    if (kind.cased && (m.mark & after(other, carry.other))) [[unlikely]] take_marks<kind>(m, other, carry);
    const uint64_t tail = tails<kind>(m, other, carry);
    other &= ~tail;
    const uint64_t space = m.space & ~tail, newline = m.newline & ~tail, gap = m.space & ~m.newline;
    const uint64_t fresh = gap & after(newline, carry.newline);
    const uint64_t prefix =
        other & ~(after(other, carry.other) | after(m.blank, carry.blank) | m.inner);
    const uint64_t joined =
        after(gap, carry.gap) | ((after(prefix, carry.prefix) + m.inner) & ~m.inner);

    uint64_t starts = (space & ~after(space, carry.space)) | m.given | prefix;
    starts |= m.word & ~after(m.word, carry.word) & ~joined;
    if (fresh) starts |= last_lines(s, n, gap, newline, fresh, carry);
    if (m.number) starts |= number_starts<kind>(m, carry);
    if (kind.cased) starts |= m.upper & after(m.lower, carry.lower);
    const uint64_t ended = carry.set;
    starts = (starts & ~(m.inner | carry.clear)) | carry.set;
    carry.set = carry.clear = 0;
    const uint64_t quotes = m.quote & (m.word >> 1 | uint64_t(1) << 63) &
                            (kind.cased ? after(m.word, carry.word) : prefix);
    if (quotes) [[unlikely]] starts = contract<kind>(s, n, starts, quotes, ended, carry);
    starts &= valid;

    const uint64_t caseless = m.word & ~(m.upper | m.lower);
    if (kind.cased) {
        const uint64_t uppers = m.upper & ~m.inner & after(caseless, carry.caseless);
        if (uppers) [[unlikely]] starts = split_at_upper(s, n, m, starts, uppers, carry);
        const size_t start = std::bit_width(starts), lower = std::bit_width(m.lower);
        if (start | lower) carry.in_lower = lower >= start;
    }
    carry.prefix = prefix >> (63 - std::countl_zero(~m.inner)) & other >> 63;
    carry.word = m.word >> 63;
    carry.lower = m.lower >> 63;
    carry.caseless = caseless >> 63;
    carry.number = m.number >> 63;
    carry.other = other >> 63;
    carry.space = space >> 63;
    carry.gap = gap >> 63;
    carry.newline = newline >> 63;
    carry.blank = m.blank >> 63;
    carry.tail = tail >> 63;
    return starts;
}

template <WordKind kind> static void mark_all(const char* text, size_t n, uint64_t* starts) {
    const uint8_t* s = reinterpret_cast<const uint8_t*>(text);
    WordCarry carry;
    for (size_t i = 0; i < n; i += 64) *starts++ = block_starts<kind>(s + i, n - i, carry);
}
}  // namespace cl100k
using cl100k::WordKind;
void mark_llama3(const char* text, size_t n, uint64_t* starts) {
    cl100k::mark_all<WordKind{false, 3}>(text, n, starts);
}
void mark_qwen2(const char* text, size_t n, uint64_t* starts) {
    cl100k::mark_all<WordKind{false, 1}>(text, n, starts);
}
void mark_nanochat(const char* text, size_t n, uint64_t* starts) {
    cl100k::mark_all<WordKind{false, 2}>(text, n, starts);
}
void mark_o200k(const char* text, size_t n, uint64_t* starts) {
    cl100k::mark_all<WordKind{true, 3}>(text, n, starts);
}

}  // namespace unicode
