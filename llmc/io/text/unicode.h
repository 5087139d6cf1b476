// Classes of characters, and a fast check of UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "llmc/base/utf8.h"

enum CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };  // the rest, \p{L}, \p{N}, \s of Unicode 16.0

// Whether the text is UTF-8. REQUIRES: kBlock more bytes are readable.
bool is_utf8(const char* text, size_t n);

CharClass class_of(uint32_t code);                  // an invalid byte is kOther, as U+FFFD is
inline CharClass class_of(Char c) { return class_of(c.code); }
