// One line of a .jsonl file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// Bytes beyond a row that must be readable, and beyond its text writable.
constexpr size_t kRowPadding = 64;

// Writes the "text" of the object on the row to `out`, which has room for the row; returns the bytes of the
// text. A row without one ends in CHECK_INPUT with file and line.
size_t parse_json_line(std::string_view row, const std::string& path, uint64_t line, char* out);

// Its two halves. The scanner is fast; false: the row is wrong or unusual, and the parser has to look at it.
// The parser reads any JSON; error says why the row has no text.
bool scan_json_line(std::string_view row, char* out, size_t& bytes);
std::string parse_json_text(std::string_view row, std::string& error);
