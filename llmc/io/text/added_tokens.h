// Added tokens in a text. Hugging Face and llama.cpp look for them before pre-tokenization: tokens with
// "special": false in every text, control tokens where the caller asks for them.
//
// At the leftmost place where a name occurs the longest name counts; the search goes on behind the name.
// Names with the flag `normalized` are found in the normalized text between the others.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/text/vocabulary.h"

inline namespace text {

struct AddedTokens {
    explicit AddedTokens(const Vocabulary& v);

    // Calls piece() for each run of ordinary text, in normal form and not empty, and token() for each added
    // token, from left to right. control: control tokens count as well. REQUIRES: kTextPadding more bytes are
    // readable, as behind each piece.
    using OnPiece = std::function<void(std::string_view)>;
    using OnToken = std::function<void(uint32_t)>;
    void split(std::string_view text, bool control, const OnPiece& piece, const OnToken& token) const;

    // Some tokens are found in every text.
    bool in_texts() const { return raw.in_texts || normalized.in_texts; }
    // Bytes on both sides of a place that touches() looks at.
    size_t reach() const { return in_texts() ? 4 * std::max(raw.longest, normalized.longest) : 0; }
    // Whether a name lies across the place, begins there or ends there.
    bool touches(std::string_view text, size_t place) const;

   private:
    struct Name { std::string text; uint32_t id; uint8_t flags; };
    struct Names {
        std::vector<Name> list;                     // ascending
        std::array<uint32_t, 257> first = {};       // names that begin with byte b: first[b] to first[b + 1]
        size_t longest = 0;
        bool in_texts = false;

        void sort();
        const Name* longest_at(std::string_view text, size_t at) const;     // nullptr: none
        void split(std::string_view text, bool control, const OnPiece& piece, const OnToken& token) const;
        bool touches(std::string_view text, size_t place) const;
    };
    Names raw, normalized;
    bool nfc;
};

}  // namespace text
