// UTF-8, a character at a time (Unicode 16.0, table 3-7).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

inline namespace base {

inline constexpr uint32_t kInvalid = 0xffffffff;

struct Char {
    uint32_t code;      // code point; kInvalid: one byte that is invalid here
    uint32_t bytes;
};

// Whether a byte continues a character: 10xxxxxx.
inline bool continues(uint8_t b) { return (b & 0xc0) == 0x80; }

// Bytes of a character, by its first byte. REQUIRES: `first` continues no character.
inline size_t bytes_by_first(uint8_t first) { return first < 0x80 ? 1 : size_t(std::countl_one(first)); }

// The first character of the n >= 1 bytes at s. Overlong forms, surrogates and cut-off characters are
// invalid, a byte at a time. is_utf8() (io/unicode) has the same rules for 64 bytes at a time.
inline Char decode_utf8(const uint8_t* s, size_t n) {
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

// The first character of s, which is not empty.
inline Char decode_utf8(std::string_view s) {
    return decode_utf8(reinterpret_cast<const uint8_t*>(s.data()), s.size());
}

// U+0000 to U+001F, U+007F to U+009F
inline bool is_control(uint32_t code) { return code < 0x20 || (code >= 0x7f && code < 0xa0); }

// Writes the UTF-8 of a code point to out, which has room for 4 bytes; returns the number of bytes.
inline int encode_utf8(uint32_t c, char* out) {
    if (c < 0x80) {
        out[0] = char(c);
        return 1;
    }
    if (c < 0x800) {
        out[0] = char(0xc0 | c >> 6);
        out[1] = char(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = char(0xe0 | c >> 12);
        out[1] = char(0x80 | (c >> 6 & 0x3f));
        out[2] = char(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = char(0xf0 | c >> 18);
    out[1] = char(0x80 | (c >> 12 & 0x3f));
    out[2] = char(0x80 | (c >> 6 & 0x3f));
    out[3] = char(0x80 | (c & 0x3f));
    return 4;
}

}  // namespace base
