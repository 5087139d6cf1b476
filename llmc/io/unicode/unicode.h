// Room io/unicode: classes of characters, normalization, and the pre-tokenizations that split a text.
// Called by io/text and io/corpus. The room reads no file and knows no vocabulary.
//
// Classes of characters, and a fast check of UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "llmc/base/utf8.h"

inline namespace unicode {

enum CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };  // the rest, \p{L}, \p{N}, \s of Unicode 16.0

// Whether the text is UTF-8. REQUIRES: kBlock more bytes are readable.
bool is_utf8(const char* text, size_t n);

CharClass class_of(uint32_t code);                  // an invalid byte is kOther, as U+FFFD is
inline CharClass class_of(Char c) { return class_of(c.code); }

// Finer classes: letters split into caseless, upper (\p{Lu}, \p{Lt}) and lower (\p{Ll}); marks (\p{M}) split
// from other characters. kDigit is kNumber, kGap is kSpace.
enum LetterClass : uint8_t { kNoLetter, kCaseless, kDigit, kGap, kUpper, kLower, kMark };
LetterClass letter_class_of(uint32_t code);

inline bool is_ascii_space(uint8_t c) { return c == ' ' || uint8_t(c - '\t') < 5; }

// The class of the character at s, with n bytes left; the end of the text counts as space.
inline CharClass class_at(const uint8_t* s, size_t n) {
    if (n == 0) return kSpace;
    if (is_ascii_space(s[0])) return kSpace;
    return class_of(decode_utf8(s, n));
}

}  // namespace unicode
