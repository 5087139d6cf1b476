// One line of a .jsonl file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

// The "text" of the object on the line. Anything else ends in CHECK_INPUT with file and line.
void parse_json_line(std::string_view row, const std::string& path, uint64_t line, std::string& text);
