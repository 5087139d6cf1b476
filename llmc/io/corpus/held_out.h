// Which text is for validation: a fraction F of all of it.
//
// Of many documents (lines of a .jsonl), whole ones: where the share is near F, those whose hash is below F,
// so that equal documents are on one side. While the share is more than 5% below F, a document is chosen with
// the probability sqrt(F), or more if more than that part of it is missing; while the share is that much
// above, none is. No document that would take the share beyond 2 F is chosen.
//
// Of a text file, its end: from the line start nearest to byte (1 - F) D of its D, where the error is at most
// an eighth of F; else from the word nearest to it; else, without white space, from a character.
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
