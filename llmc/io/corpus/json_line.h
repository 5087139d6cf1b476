// One line of a .jsonl file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// Bytes that must be readable beyond a row, and writable beyond its text.
constexpr size_t kRowPadding = 64;

// Writes the "text" of the object on the row to `out`, which has room for the row; returns the bytes of the
// text. A row without a text ends in CHECK_INPUT with file and line.
size_t parse_json_line(std::string_view row, const std::string& path, uint64_t line, char* out);

// The two halves of parse_json_line. The scanner is fast; false: the row is wrong or unusual, and needs the
// parser. The parser reads any JSON; error: the reason why the row has no text.
bool scan_json_line(std::string_view row, char* out, size_t& bytes);
std::string parse_json_text(std::string_view row, std::string& error);
