// GPT-2's pre-tokenization: text is split into the matches, from left to right, of
//
//     '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// No merge crosses a split. Without contractions the start of a match is a local property of characters c at
// i:
//
//     c not a space:  the character before is of another class, and is not U+0020 (which joins its successor)
//     c a space:      the character before is no space, or a character follows and is no space
//                     (a run of spaces gives its last space to the next match)
//
// and a contraction, tried first, matches only at an apostrophe at such a start: its letters start no
// match, the next character does. The code is bit arithmetic on 64 characters at a time.
#pragma once
#include <cstddef>
#include <cstdint>

// Bytes that must be readable after the end of a text.
constexpr size_t kTextPadding = 64;

// Sets bit i of `starts` where a match starts at byte i; (n + 63) / 64 words are written. No bit at n or
// after it.
void mark_starts(const char* text, size_t n, uint64_t* starts);

// A place < n, at `first` or after, to split the text: both parts, pre-tokenized on their own, give the
// matches of the whole. The last place of the first kind, else of the second; 0: neither, the text is
// a single word.
//
//   - Before an ASCII space character that follows no space. Right part: a match starts there (the rule
//     above), and a match depends on nothing before its start. Left part: the last character is no space, so
//     each run of spaces and its lookahead lie inside; other matches end where their class ends, and the
//     match at the cut ends there in the whole text too. A contraction has no spaces, so no contraction
//     crosses the cut.
//   - Between two characters of different classes, neither a space. A match starts there, except
//     after an apostrophe, which may begin a contraction.
size_t safe_cut(const char* text, size_t n, size_t first = 1);
