#include "llmc/base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "llmc/base/utf8.h"

std::string json_number(double v) {
    if (!std::isfinite(v)) return "null";
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

// Length of the character at s, 0 if invalid. REQUIRES: s is not empty.
static size_t valid_bytes(std::string_view s) {
    const Char c = decode_utf8(reinterpret_cast<const uint8_t*>(s.data()), s.size());
    return c.code == kInvalid ? 0 : c.bytes;
}

static const char* escape(char c) {
    switch (c) {
        case '"': return "\\\"";
        case '\\': return "\\\\";
        case '\n': return "\\n";
        case '\r': return "\\r";
        case '\t': return "\\t";
        default: return nullptr;
    }
}

// U+0000 to U+001F, U+007F to U+009F; n: length of the character at s
static bool is_control(std::string_view s, size_t n) {
    const uint8_t b = uint8_t(s[0]);
    return n == 1 ? b < 0x20 || b == 0x7F : n == 2 && b == 0xC2 && uint8_t(s[1]) < 0xA0;
}

// "\u001b", "\x1b"
static std::string code_of(const char* prefix, int digits, unsigned value) {
    return fmt::format("\\{}{:0{}x}", prefix, value, digits);
}

std::string json_string(std::string_view s) {
    std::string text = "\"";
    while (!s.empty()) {
        const size_t n = valid_bytes(s);
        if (const char* e = escape(s[0])) text += e;
        else if (n == 0) text += "\uFFFD";
        else if (is_control(s, n)) text += code_of("u", 4, uint8_t(s[n - 1]));
        else text += s.substr(0, n);
        s.remove_prefix(n ? n : 1);
    }
    return text + "\"";
}

std::string printable(std::string_view s) {
    std::string text;
    while (!s.empty()) {
        const size_t n = valid_bytes(s);
        const bool control = is_control(s, n) && s[0] != '\n' && s[0] != '\t';
        if (n == 0 || control) text += "\uFFFD";
        else text += s.substr(0, n);
        s.remove_prefix(n ? n : 1);
    }
    return text;
}

static std::string escaped(std::string_view s) {
    std::string text;
    for (size_t lines = 0; !s.empty();) {
        const size_t n = valid_bytes(s);
        const bool newline = s[0] == '\n';
        if (newline && ++lines > kMessageLines) text += "\\n";
        else if (n == 0) text += code_of("x", 2, uint8_t(s[0]));
        else if (newline || s[0] == '\t' || !is_control(s, n)) text += s.substr(0, n);
        else text += n == 1 ? code_of("x", 2, uint8_t(s[0])) : code_of("u", 4, uint8_t(s[1]));
        s.remove_prefix(n ? n : 1);
    }
    return text;
}


// A message begins with the place and the error, and ends with the expectation.
std::string for_terminal(std::string_view s) {
    const std::string text = escaped(s);
    if (text.size() <= kMessageBytes) return text;
    size_t head = kMessageBytes / 3, tail = text.size() - head;
    while (continues(uint8_t(text[head]))) head--;
    while (continues(uint8_t(text[tail]))) tail++;
    return text.substr(0, head) + " ... (" + std::to_string(tail - head) + " bytes more) ... " +
           text.substr(tail);
}

size_t whole_characters(std::string_view s) {
    for (size_t back = 1; back <= std::min<size_t>(s.size(), 3); back++) {
        const uint8_t b = uint8_t(s[s.size() - back]);
        if (continues(b)) continue;                         // the character begins further in front
        return back < bytes_by_first(b) ? s.size() - back : s.size();
    }
    return s.size();
}

JsonLine& JsonLine::raw(std::string_view key, std::string_view json) {
    if (text.size() > 1) text += ",";
    text += json_string(key);
    text += ":";
    text += json;
    return *this;
}
