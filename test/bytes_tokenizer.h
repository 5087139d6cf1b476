// A tokenizer without merges.
#pragma once
#include "llmc/io/text/tokenizer.h"
#include "llmc/io/text/vocabulary.h"

// Ids 0 to 255 are the bytes, 256 is end-of-text. without: a byte that has no token; -1: none.
inline Tokenizer bytes_tokenizer(int without = -1) {
    TokenList list;
    for (int b = 0; b < 256; b++) {
        list.text.push_back(b == without ? "<none>" : std::string(1, char(b)));
        list.added.push_back(0);
    }
    list.text.push_back(std::string(kEndOfText)), list.added.push_back(1);
    return Tokenizer(vocabulary_of_tokens(list, 256, "bytes"));
}
