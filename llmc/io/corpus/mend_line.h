// Broken lines of a .jsonl, mended where the damage is known.
#pragma once
#include <string>
#include <string_view>

inline namespace corpus {

// The row as JSON of valid UTF-8: an invalid byte and a lone surrogate (\ud800) become U+FFFD; NaN and
// Infinity, which Python writes for numbers, become null. Other errors stay.
std::string mended_row(std::string_view row);

}  // namespace corpus
