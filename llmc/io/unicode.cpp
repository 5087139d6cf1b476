#include "llmc/io/unicode.h"

#include "llmc/io/unicode_tables.h"

CharClass class_of(uint32_t code) {
    if (code >= 0x110000) return kOther;
    return CharClass(kUnicodeClass[kUnicodeBlock[code >> 7]][(code & 127) >> 2] >> (code & 3) * 2 & 3);
}

static bool continues(uint8_t b) { return (b & 0xc0) == 0x80; }

Char decode_utf8(const uint8_t* s, size_t n) {
    const uint32_t b = s[0];
    if (b < 0x80) return {b, 1};
    if (b >= 0xc2 && b < 0xe0 && n >= 2 && continues(s[1])) return {(b & 0x1f) << 6 | (s[1] & 0x3fu), 2};
    if (b >= 0xe0 && b < 0xf0 && n >= 3 && continues(s[1]) && continues(s[2])) {
        const uint32_t c = (b & 0x0f) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
        if (c >= 0x800 && (c < 0xd800 || c >= 0xe000)) return {c, 3};
    }
    if (b >= 0xf0 && b < 0xf5 && n >= 4 && continues(s[1]) && continues(s[2]) && continues(s[3])) {
        const uint32_t c = (b & 0x07) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
        if (c >= 0x10000 && c < 0x110000) return {c, 4};
    }
    return {kInvalid, 1};
}

int encode_utf8(uint32_t c, char* out) {
    if (c < 0x80) return out[0] = char(c), 1;
    if (c < 0x800) return out[0] = char(0xc0 | c >> 6), out[1] = char(0x80 | (c & 0x3f)), 2;
    if (c < 0x10000) {
        out[0] = char(0xe0 | c >> 12), out[1] = char(0x80 | (c >> 6 & 0x3f)),
        out[2] = char(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = char(0xf0 | c >> 18), out[1] = char(0x80 | (c >> 12 & 0x3f));
    out[2] = char(0x80 | (c >> 6 & 0x3f)), out[3] = char(0x80 | (c & 0x3f));
    return 4;
}
