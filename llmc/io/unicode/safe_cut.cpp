#include "llmc/io/unicode/safe_cut.h"

#include "llmc/io/unicode/unicode.h"

inline namespace unicode {

// The character that ends at s[n - 1]; of the bytes of an invalid one, the last.
static Char last_character(const uint8_t* s, size_t n) {
    size_t at = n - 1;
    while (at > 0 && n - at < 4 && continues(s[at])) at--;
    const Char c = decode_utf8(s + at, n - at);
    return at + c.bytes == n ? c : Char{kInvalid, 1};
}

static bool starts_match(const uint8_t* s, size_t i) {
    if (!is_ascii_space(s[i])) return false;
    const CharClass before = class_of(last_character(s, i));
    const bool line_end = s[i] == '\r' || s[i] == '\n';
    return before != kSpace && (!line_end || before == kLetter || before == kNumber);
}

// Also false where a character is cut off or invalid.
static bool class_changes(const uint8_t* s, size_t n, size_t i) {
    if (continues(s[i]) || (s[i] >= 0x80 && n - i < 4)) return false;
    const Char before = last_character(s, i), after = decode_utf8(s + i, n - i);
    if (before.code == kInvalid || after.code == kInvalid) return false;
    if (before.code == '\'' || after.code == '\'') return false;
    if (letter_class_of(before.code) == kMark || letter_class_of(after.code) == kMark) return false;
    const CharClass left = class_of(before), right = class_of(after);
    if (left == right || left == kSpace || right == kSpace) return false;
    return left == kLetter || left == kNumber || right == kNumber;
}

size_t safe_cut(const char* text, size_t n, size_t first) {
    const uint8_t* s = reinterpret_cast<const uint8_t*>(text);
    for (size_t i = n; i-- > first;)
        if (starts_match(s, i)) return i;
    for (size_t i = n; i-- > first;)
        if (class_changes(s, n, i)) return i;
    return 0;
}

}  // namespace unicode
