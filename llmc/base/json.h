// Writes JSON text, value by value: numbers in the shortest form that reads back the same.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

std::string json_number(double v);              // null where v is not finite
std::string json_string(std::string_view s);    // quoted; invalid UTF-8 becomes U+FFFD

// The text as valid UTF-8 without control characters but newline and tab; other bytes become U+FFFD.
std::string printable(std::string_view s);

// A message, safe for a terminal: control characters but newline and tab, and invalid UTF-8, become escapes
// such as \x1b or \u009b. A text beyond kMessageBytes loses its middle; newlines beyond kMessageLines become
// \n.
inline constexpr size_t kMessageBytes = 2000, kMessageLines = 6;
std::string for_terminal(std::string_view s);

// Length of s in bytes, without an incomplete UTF-8 character at the end.
size_t whole_characters(std::string_view s);

// One object on one line: JsonLine("train").add("step", 3).add("loss", 4.2).str() is
// {"event":"train","step":3,"loss":4.2} and a newline.
struct JsonLine {
    std::string text = "{";

    explicit JsonLine(std::string_view event) { add("event", event); }
    JsonLine& raw(std::string_view key, std::string_view json);
    JsonLine& add(std::string_view key, double v) { return raw(key, json_number(v)); }
    JsonLine& add(std::string_view key, int v) { return raw(key, std::to_string(v)); }
    JsonLine& add(std::string_view key, int64_t v) { return raw(key, std::to_string(v)); }
    JsonLine& add(std::string_view key, uint64_t v) { return raw(key, std::to_string(v)); }
    JsonLine& add(std::string_view key, bool v) { return raw(key, v ? "true" : "false"); }
    JsonLine& add(std::string_view key, std::string_view v) { return raw(key, json_string(v)); }
    JsonLine& add(std::string_view key, const char* v) { return add(key, std::string_view(v)); }
    std::string str() const { return text + "}\n"; }
};
