#include "llmc/io/unicode/unicode.h"

#include "llmc/io/unicode/byte_block.h"
#include "llmc/io/unicode/letter_tables.h"
#include "llmc/io/unicode/unicode_tables.h"

CharClass class_of(uint32_t code) {
    if (code >= 0x110000) return kOther;
    return CharClass(kUnicodeClass[kUnicodeBlock[code >> 7]][(code & 127) >> 2] >> (code & 3) * 2 & 3);
}

LetterClass letter_class_of(uint32_t code) {
    if (code >= 0x110000) return kNoLetter;
    return LetterClass(kLetterClass[kLetterBlock[code >> 7]][(code & 127) >> 1] >> (code & 1) * 4 & 15);
}

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
