// The terminal that shows a program's output.
#pragma once

// Whether output of descriptor 1 or 2 ends on a terminal. note_terminals() keeps the answers for both, before
// a pipe takes the terminal's place (base/guard/screen.cpp).
bool on_terminal(int descriptor);
void note_terminals();
void note_terminals(bool out, bool err);        // the answers of a program before this one
// Characters a line of the terminal holds; 0: not known.
int terminal_columns();
// What a line begins with on descriptor 1 or 2: on a terminal it replaces a line that is redrawn.
const char* line_start(int descriptor);
