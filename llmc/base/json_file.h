// JSON that a person or another program wrote. Where it is broken the program ends with exit code 78; the
// message names the file, line and column, and quotes the place.
#pragma once
#include <string>
#include <string_view>

#include "llmc/base/json_value.h"

// Hints on mistakes, behind the quote.
struct JsonHints {
    const char* start = "";         // the text begins with another character than a brace
    const char* comment = "JSON has no comments";
};

// name: of the file, for the message. deepest: as for parse_json().
Json parse_json_text(std::string_view text, const std::string& name, int deepest = 32,
                     const JsonHints& hints = {});
Json parse_json_file(const std::string& path);
