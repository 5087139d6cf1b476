// A vocabulary: the bytes of each token and the merges; and shared parts of the parsers of tokenizer files.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

struct Merge { uint32_t left, right, id; };     // two ids become one; rank is the place in the list

struct Vocabulary {
    std::vector<char> text;             // bytes of every token, by id
    std::vector<uint32_t> start;        // of id i: text[start[i] .. start[i + 1])
    std::vector<uint8_t> added;  // of id i: 1: no merge yields i (end-of-text, a foreign file's extras)
    std::vector<Merge> merges;
    uint32_t byte_id[256] = {};
    uint32_t eot = 0;
    bool words_are_tokens = false;      // each token's bytes, encoded as a word, are known to give the token

    uint32_t size() const { return uint32_t(added.size()); }
    std::string_view text_of(uint32_t id) const {
        return {text.data() + start[id], start[id + 1] - start[id]};
    }
};

// GPT-2 writes bytes as printable characters: byte b as the code point of_byte[b]. to_byte is the inverse, -1
// for other code points below 512. In the order of code points the bytes are 0x21..0x7e, 0xa1..0xac,
// 0xae..0xff as themselves, then the other bytes from U+0100 on.
struct ByteAlphabet {
    std::array<uint16_t, 256> of_byte;
    std::array<int16_t, 512> to_byte;
    std::array<uint8_t, 256> order;     // bytes by their code point
};
const ByteAlphabet& byte_alphabet();

// The bytes of such characters; false: a character has no byte.
bool bytes_of_characters(std::string_view characters, std::string& bytes);
std::string characters_of_bytes(std::string_view bytes);

constexpr std::string_view kEndOfText = "<|endoftext|>";

// Tokens of a file, by id; `added` ids are no result of merges and their text is used unchanged.
struct TokenList {
    std::vector<std::string> text;
    std::vector<uint8_t> added;
};

// Checks for every single byte and for duplicate texts, and lays out the vocabulary without merges.
Vocabulary vocabulary_of_tokens(const TokenList& tokens, uint32_t eot, const char* name);
