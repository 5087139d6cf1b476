// Pre-tokenization: text is split into the matches of a pattern, from left to right; no merge crosses a
// split. pattern.cpp lists the patterns. The code is bit arithmetic on 64 characters at a time.
//
// GPT-2:
//
//     '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Without contractions the start of a match is a local property of characters c at i:
//
//     c not a space:  the character before is of another class, and is not U+0020 (which joins its successor)
//     c a space:      the character before is no space, or a character follows and is no space
//                     (a run of spaces gives its last space to the next match)
//
// and a contraction, tried first, matches only at an apostrophe at such a start: its letters start no
// match, the next character does. SmolLM2 first splits off each digit: every digit is a start, and a run of
// spaces before a digit ends its span of text and gives nothing back.
#pragma once
#include <cstddef>
#include <cstdint>

inline namespace unicode {

// Bytes that must be readable after the end of a text.
constexpr size_t kTextPadding = 64;

// Sets bit i of `starts` where a match starts at byte i; (n + 63) / 64 words are written. No bit at n or
// after it.
using MarkStarts = void(const char* text, size_t n, uint64_t* starts);
MarkStarts mark_gpt2, mark_smollm;
MarkStarts mark_llama3, mark_qwen2, mark_o200k, mark_nanochat;     // pretokenize_cl100k.cpp

}  // namespace unicode
