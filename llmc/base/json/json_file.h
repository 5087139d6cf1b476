// Parses JSON that a person or another program wrote. Invalid JSON ends the program with exit code 78; the
// message names the file, line and column, and quotes the place of the error.
#pragma once
#include <string>
#include <string_view>

#include "llmc/base/json/json_value.h"

inline namespace json_format {

// Hints that the message adds behind the quote. quotes: whether there is one; else the message is one line.
struct JsonHints {
    bool quotes = true;
    const char* start = "";         // where the text begins with another character than a brace
    const char* comment = "JSON has no comments";       // where the error is at a / or a #
};

// name: the file's name, for the message. deepest: as for parse_json().
Json parse_json_text(std::string_view text, const std::string& name, int deepest = 32,
                     const JsonHints& hints = {});
Json parse_json_file(const std::string& path);

}  // namespace json_format
