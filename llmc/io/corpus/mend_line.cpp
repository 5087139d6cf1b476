#include "llmc/io/corpus/mend_line.h"

#include <cctype>

#include "llmc/base/utf8.h"

inline namespace corpus {

static constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The code unit of an escape \uXXXX at the front; -1: none is there.
static int unit_at(std::string_view s) {
    if (s.size() < 6 || s[0] != '\\' || s[1] != 'u') return -1;
    int unit = 0;
    for (const char c : s.substr(2, 4)) {
        if (!isxdigit(uint8_t(c))) return -1;
        const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        unit = unit << 4 | digit;
    }
    return unit;
}

// Appends the escape at the front of s; returns its bytes. A lone surrogate is replaced.
static size_t add_escape(std::string_view s, std::string& out) {
    const int unit = unit_at(s), next = s.size() > 6 ? unit_at(s.substr(6)) : -1;
    const bool high = unit >= 0xd800 && unit < 0xdc00, low = unit >= 0xdc00 && unit < 0xe000;
    const bool pair = high && next >= 0xdc00 && next < 0xe000;
    if ((high && !pair) || low) {
        out += kReplacement;
        return 6;
    }
    size_t bytes = 2;
    if (unit >= 0) bytes = pair ? 12 : 6;
    out += s.substr(0, bytes);
    return std::min(bytes, s.size());
}

// Bytes of a number at the front that JSON does not know; 0: none is there.
static size_t no_number(std::string_view s) {
    for (const std::string_view name : {"NaN", "Infinity", "-Infinity"})
        if (s.starts_with(name)) return name.size();
    return 0;
}

std::string mended_row(std::string_view row) {
    std::string out;
    bool inside = false;                // a string
    for (size_t i = 0; i < row.size();) {
        const std::string_view rest = row.substr(i);
        const size_t none = inside ? 0 : no_number(rest);
        if (none) {
            out += "null";
            i += none;
        } else if (inside && rest[0] == '\\') {
            i += add_escape(rest, out);
        } else {
            const Char c = decode_utf8(reinterpret_cast<const uint8_t*>(rest.data()), rest.size());
            if (rest[0] == '"') inside = !inside;
            out += c.code == kInvalid ? kReplacement : rest.substr(0, c.bytes);
            i += c.bytes;
        }
    }
    return out;
}

}  // namespace corpus
