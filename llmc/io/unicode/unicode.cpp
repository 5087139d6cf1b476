#include "llmc/io/unicode/unicode.h"

#include <cstring>

#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/packed.h"
#include "llmc/io/unicode/unicode_table.h"

inline namespace unicode {

namespace {

// Of each code point: its LetterClass in bits 0 to 3, its CharClass in bits 4 and 5. REQUIRES: zeros before
// (a static object), so that pages without a class cost nothing.
struct Classes {
    uint8_t of[0x110000];

    Classes() {
        constexpr uint32_t kCased = 7;              // upper, lower, upper, lower, ...
        const auto both = [](uint32_t letter) {
            constexpr CharClass kClass[] = {kOther, kLetter, kNumber, kSpace, kLetter, kLetter, kOther};
            return uint8_t(letter | uint32_t(kClass[letter]) << 4);
        };
        each_run(kLetterRuns, 8, [&](uint32_t first, uint32_t end, uint32_t k) {
            if (k == kNoLetter) return;
            memset(of + first, both(k == kCased ? uint32_t(kUpper) : k), end - first);
            for (uint32_t c = first + 1; k == kCased && c < end; c += 2) of[c] = both(kLower);
        });
    }
};

uint32_t classes_of(uint32_t code) {
    static const Classes all;
    return code < 0x110000 ? all.of[code] : 0;
}

}  // namespace

CharClass class_of(uint32_t code) { return CharClass(classes_of(code) >> 4); }
LetterClass letter_class_of(uint32_t code) { return LetterClass(classes_of(code) & 15); }

// Unicode 16.0, table 3-7: bytes that lead two, three or four, bytes that continue, and the narrower second
// byte after E0, ED, F0 and F4.
bool is_utf8(const char* text, size_t n) {
    struct Leads { uint64_t any, of_three, of_four, e0, ed, f0, f4; } before = {};      // of the last block
    const auto after = [](uint64_t now, uint64_t before, int k) { return now << k | before >> (64 - k); };
    const auto expected = [&](const Leads& now) {
        return after(now.any, before.any, 1) | after(now.of_three, before.of_three, 2) |
               after(now.of_four, before.of_four, 3);
    };
    for (size_t i = 0; i < n; i += kBlock) {
        const Block c(text + i);
        const uint64_t valid = n - i >= kBlock ? ~uint64_t(0) : (uint64_t(1) << (n - i)) - 1;
        const uint64_t high = c.high() & valid;
        Leads now = {};
        if (high) {
            const auto is = [&](uint8_t byte) { return c.is(char(byte)) & valid; };
            const uint64_t four = c.among(0xf0, 5) & valid, three = c.among(0xe0, 16) & valid;
            now = {four | three | (c.among(0xc2, 30) & valid), four | three, four,
                   is(0xe0), is(0xed), is(0xf0), is(0xf4)};
            const uint64_t from_a0 = c.among(0xa0, 32), from_90 = c.among(0x90, 48);
            if ((after(now.e0, before.e0, 1) & ~from_a0) | (after(now.ed, before.ed, 1) & from_a0) |
                (after(now.f0, before.f0, 1) & ~from_90) | (after(now.f4, before.f4, 1) & from_90))
                return false;
        }
        const uint64_t continues = c.among(0x80, 64) & valid;
        if (expected(now) != continues || (high & ~(now.any | continues))) return false;
        before = now;
    }
    return expected({}) == 0;
}

}  // namespace unicode
