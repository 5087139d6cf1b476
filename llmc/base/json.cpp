#include "llmc/base/json.h"

#include <charconv>
#include <cmath>
#include <cstdio>

std::string json_number(double v) {
    if (!std::isfinite(v)) return "null";
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

// Length of the UTF-8 sequence at s, 0 where it is invalid (Unicode 16.0, table 3-7).
static size_t sequence(std::string_view s) {
    const auto byte = [&](size_t i) { return i < s.size() ? uint8_t(s[i]) : uint8_t(0); };
    const auto within = [&](size_t i, int low, int high) { return byte(i) >= low && byte(i) <= high; };
    const auto tail = [&](size_t i) { return within(i, 0x80, 0xBF); };
    const uint8_t b = byte(0);
    if (b < 0x80) return 1;
    if (b >= 0xC2 && b <= 0xDF) return tail(1) ? 2 : 0;
    if (b >= 0xE0 && b <= 0xEF)
        return within(1, b == 0xE0 ? 0xA0 : 0x80, b == 0xED ? 0x9F : 0xBF) && tail(2) ? 3 : 0;
    if (b >= 0xF0 && b <= 0xF4)
        return within(1, b == 0xF0 ? 0x90 : 0x80, b == 0xF4 ? 0x8F : 0xBF) && tail(2) && tail(3) ? 4 : 0;
    return 0;
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

std::string json_string(std::string_view s) {
    std::string text = "\"";
    while (!s.empty()) {
        const size_t n = sequence(s);
        if (const char* e = escape(s[0])) text += e;
        else if (n == 0) text += "\uFFFD";
        else if (n == 1 && (uint8_t(s[0]) < 0x20 || s[0] == 0x7F)) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", unsigned(s[0]));
            text += code;
        } else text += s.substr(0, n);
        s.remove_prefix(n ? n : 1);
    }
    return text + "\"";
}

std::string printable(std::string_view s) {
    std::string text;
    while (!s.empty()) {
        const size_t n = sequence(s);
        const bool control = n == 1 && (uint8_t(s[0]) < 0x20 || s[0] == 0x7F) && s[0] != '\n' && s[0] != '\t';
        const bool c1 = n == 2 && uint8_t(s[0]) == 0xC2 && uint8_t(s[1]) < 0xA0;    // U+0080 to U+009F
        if (n == 0 || control || c1) text += "\uFFFD";
        else text += s.substr(0, n);
        s.remove_prefix(n ? n : 1);
    }
    return text;
}

JsonLine& JsonLine::raw(std::string_view key, std::string_view json) {
    if (text.size() > 1) text += ",";
    text += json_string(key);
    text += ":";
    text += json;
    return *this;
}
