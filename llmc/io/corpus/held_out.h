// Which text is for validation: a fraction F of all of it.
//
// Of many documents (lines of a .jsonl), whole ones. Let S be the share of the bytes chosen so far. Where S
// is within 5% of F, a document is chosen if its hash is below F, so that equal documents are on one side.
// Where S is smaller, a document is chosen with the larger of two probabilities: sqrt(F), and the part of
// the document that S lacks. Where S is larger, none is. None is chosen that would take S beyond 2 F.
//
// Of a text file with D bytes, its end. It begins at the line start nearest to byte (1 - F) D, if this is
// off by at most an eighth of F; else at the nearest word; in a text without white space at a character.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

inline namespace corpus {

struct HeldOut {
    double fraction = 0;                // F
    uint64_t seen = 0, chosen = 0;      // bytes of the documents so far, and of those for validation

    // Whether the next document is for validation.
    bool choose(std::string_view document);
};

// Where the end of a text begins: byte of the file, whose text is [begin, size). `size` where no place is
// inside the text.
uint64_t validation_cut(int fd, uint64_t begin, uint64_t size, double fraction, const std::string& path);

}  // namespace corpus
