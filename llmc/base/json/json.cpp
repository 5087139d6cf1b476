#include "llmc/base/json/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "llmc/base/utf8.h"

inline namespace json_format {

std::string json_number(double v) {
    if (!std::isfinite(v)) return "null";
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, v).ptr};
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
    const auto special = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; };
    std::string text = "\"";
    while (!s.empty()) {
        const size_t plain = size_t(std::ranges::find_if(s, special) - s.begin());
        text += s.substr(0, plain);
        s.remove_prefix(plain);
        if (s.empty()) break;
        const Char c = decode_utf8(s);
        if (const char* e = escape(s[0])) text += e;
        else if (c.code == kInvalid) text += "\uFFFD";
        else if (is_control(c.code)) text += fmt::format("\\u{:04x}", c.code);
        else text += s.substr(0, c.bytes);
        s.remove_prefix(c.bytes);
    }
    return text + "\"";
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
    if (text.size() > 1) text += comma;
    text += json_string(key);
    text += colon;
    text += json;
    return *this;
}

}  // namespace json_format
