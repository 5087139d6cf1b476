// A vocabulary: the bytes of each token, the merges and other rules for ids; and shared parts of the parsers
// of tokenizer files.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/json/json_value.h"
#include "llmc/io/unicode/pattern.h"

inline namespace text {

constexpr uint32_t kNoByte = 0xffffffff;

struct Merge { uint32_t left, right, id; };     // two ids become one; rank is the place in the list

// Kinds of added tokens: bits of Vocabulary::added. The last four are flags of tokenizer.json.
enum AddedBits : uint8_t {
    kAdded = 1,             // no merge yields the id; without the next bit a control token
    kInTexts = 2,           // "special": false, or GGUF's user-defined: found in every text
    kUnusedId = 4,          // GGUF's unused: a filler
    kNormalized = 16,       // found in the normalized text
    kSingleWord = 32,       // not within a word
    kLeftStrip = 64,        // takes the white space on its left
    kRightStrip = 128,      // takes the white space on its right
};

struct Vocabulary {
    std::vector<char> text;             // bytes of every token, by id
    std::vector<uint32_t> start;        // by id: id i has the bytes text[start[i] .. start[i + 1])
    std::vector<uint8_t> added;         // by id: AddedBits; 0: a token that is a byte or comes of merges
    std::vector<Merge> merges;
    uint32_t byte_id[256] = {};         // kNoByte: no token has this byte alone
    int64_t unknown = -1;               // id of a byte without a token; -1: dropped, as in Hugging Face's
    uint32_t eot = 0;
    bool words_are_tokens = false;      // each token's bytes, encoded as a word, are known to give the token
    const Pattern* pattern = &patterns()[0];
    bool nfc = false;                   // text is normalized first
    bool ignore_merges = false;         // a word in the vocabulary becomes its token, without merges
    int64_t bos = -1, eos = -1;         // -1: unknown
    bool adds_bos = false, adds_eos = false;    // a text begins with bos, ends with eos
    bool prefix_space = false;          // a space goes before a text that begins without one
    bool end_appended = false;          // the end-of-text follows the file's tokens: no file names one
    std::string chat_template;          // from the file (chat.h); may be empty

    uint32_t size() const { return uint32_t(added.size()); }
    std::string_view text_of(uint32_t id) const {
        return {text.data() + start[id], start[id + 1] - start[id]};
    }
    int64_t find_added(std::string_view name) const;        // its id, -1: none
    bool is_control(uint32_t id) const { return added[id] && !(added[id] & kInTexts); }
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

// Sets `bytes` to the bytes that such characters stand for; false: a character stands for no byte.
bool bytes_of_characters(std::string_view characters, std::string& bytes);
std::string characters_of_bytes(std::string_view bytes);

constexpr std::string_view kEndOfText = "<|endoftext|>";

// Names of added tokens that end a text and begin one, in order of preference. Between nanochat's documents
// stands <|bos|>.
constexpr std::string_view kEndNames[] = {kEndOfText, "<|end_of_text|>", "<|bos|>"};
constexpr std::string_view kBeginNames[] = {"<|begin_of_text|>", "<|startoftext|>", "<|bos|>"};

// Tokens of a file, by id. added: as in Vocabulary; the text of such a token is used unchanged.
struct TokenList {
    std::vector<std::string> text;
    std::vector<uint8_t> added;

    int64_t find_added(std::string_view name) const;        // its id, -1: none
    template <size_t n> int64_t find_added(const std::string_view (&names)[n]) const {
        for (const std::string_view name : names)
            if (const int64_t id = find_added(name); id >= 0) return id;
        return -1;
    }
};

// The token that ends a text, for files without one of kEndNames: its text, else its id; empty, -1: unknown.
struct EndOfText {
    std::string text;
    int64_t id = -1;
};

// Added tokens in files beside a vocabulary, in the form of tokenizer.json's added_tokens; `special` without
// ids.
struct FolderTokens {
    Json::List added, special;
};

// A vocabulary of these tokens, without merges. CHECK_INPUT: an empty token, two tokens that are the same
// byte, a printable ASCII character without a token. name: the file's, for messages.
Vocabulary vocabulary_of_tokens(const TokenList& tokens, uint32_t eot, const std::string& name);

}  // namespace text
