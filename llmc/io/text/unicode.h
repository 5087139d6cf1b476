// Classes of characters, and UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>

enum CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };  // the rest, \p{L}, \p{N}, \s of Unicode 16.0

constexpr uint32_t kInvalid = 0xffffffff;

struct Char {
    uint32_t code;      // kInvalid: a byte that is not UTF-8 here
    uint32_t bytes;
};

// The character at text, which has n >= 1 bytes. Overlong forms, surrogates and cut-off characters are
// invalid, a byte at a time.
Char decode_utf8(const uint8_t* text, size_t n);

// Whether the text is UTF-8. REQUIRES: kBlock more bytes are readable.
bool is_utf8(const char* text, size_t n);

CharClass class_of(uint32_t code);                  // an invalid byte is kOther, as U+FFFD is
inline CharClass class_of(Char c) { return class_of(c.code); }

// Appends the UTF-8 of a code point; returns the bytes written, at most 4.
int encode_utf8(uint32_t code, char* out);
