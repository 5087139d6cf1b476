// One line of a .jsonl file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

inline namespace corpus {

// Bytes that must be readable beyond a row, and writable beyond its text.
constexpr size_t kRowPadding = 64;

// The two ways to the text of a row: the string `field` of its object. scan: writes it to `out`, which has
// room for the row, and its bytes to `bytes`; fast; false: the row is wrong or unusual, and needs the parser.
// parse: reads any JSON; error: the reason why the row has no text.
bool scan_json_line(std::string_view row, char* out, size_t& bytes, std::string_view field = "text");
std::string parse_json_text(std::string_view row, std::string& error, std::string_view field = "text");

}  // namespace corpus
