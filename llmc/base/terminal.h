// The terminal that shows a program's output, and text that is safe for it.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

inline namespace base {

// Whether output of descriptor 1 or 2 ends on a terminal. note_terminals() keeps the answers for both, before
// a pipe takes the terminal's place (base/guard/screen.cpp).
bool on_terminal(int descriptor);
void note_terminals();
void note_terminals(bool out, bool err);        // the answers of a program before this one
// Characters a line of the terminal holds; 0: not known.
int terminal_columns();
// The start of a line on descriptor 1 or 2: on a terminal it erases a redrawn line.
const char* line_start(int descriptor);

// The text as valid UTF-8 without control characters but newline and tab; other bytes become U+FFFD.
std::string printable(std::string_view s);

// A message, safe for a terminal: control characters but newline and tab, and invalid UTF-8, become escapes
// such as \x1b or \u009b. A text beyond kMessageBytes loses its middle; newlines beyond kMessageLines become
// \n.
inline constexpr size_t kMessageBytes = 2000, kMessageLines = 6;
std::string for_terminal(std::string_view s);

// Length of s in bytes, without an incomplete UTF-8 character at the end.
size_t whole_characters(std::string_view s);

}  // namespace base
