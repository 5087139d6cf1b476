// Where a text can be split without changing an id, whatever the pattern of the tokenizer.
#pragma once
#include <cstddef>

inline namespace unicode {

// A place < n, at `first` or after, to split the text: both sides, normalized and pre-tokenized on their own,
// give the matches of the whole. The last place of the first kind, else of the second; 0: neither.
//
//   - Before an ASCII space character that follows no space; before \r and \n only after a letter or a number
//     (other characters may take the line's end with them). Right side: a match starts there, and a match
//     depends on nothing before its start. Left side: the last character is no space, so each run of
//     spaces and its lookahead lie inside; other matches end before a space, and the match at the cut ends
//     there in the whole text too. A contraction has no spaces, so no contraction crosses the cut.
//   - Between two characters of different classes, neither a space or a mark, one of them a number or the
//     left one a letter. A match starts there, except at or after an apostrophe, which may belong to
//     a contraction. (After other characters a letter may belong to their match.)
//
// No character after a cut composes with one before the cut: only marks, and letters with letters, do.
size_t safe_cut(const char* text, size_t n, size_t first = 1);

}  // namespace unicode
