// Normalization of text to NFC, Unicode's composed form (Unicode Standard Annex 15), as Hugging Face's
// `tokenizers` does it: by the marks and decompositions of an older Unicode.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

inline namespace unicode {

// Whether the text is surely in NFC already. REQUIRES: kBlock more bytes are readable.
bool is_surely_nfc(const char* text, size_t n);

// Bytes that are not UTF-8 stay as they are.
std::string nfc_of(std::string_view text);

}  // namespace unicode
