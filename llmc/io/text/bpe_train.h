// Training of a byte-level BPE: from the 256 bytes, the most frequent pair of neighbours becomes a token,
// again and again (Sennrich, Haddow, Birch 2016), within pre-tokens.
//
// Merges are those of Hugging Face's BpeTrainer (min_frequency 0, the byte-level initial alphabet): of
// equally frequent pairs the one of the smaller ids goes first; bytes have their ids in the order of GPT-2's
// characters; a pair whose text is a token already becomes that token. Its counting is followed to the
// letter, see the .cpp. A pair whose text is longer than kMaxTokenBytes stays two tokens, as with Hugging
// Face's max_token_length.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/text/documents.h"
#include "llmc/io/text/tokenizer.h"

constexpr size_t kMaxTokenBytes = 65535;

// Pre-tokens with how often they occur.
struct WordCounts {
    std::string text;                   // of all words, one after the other
    std::vector<uint32_t> length;
    std::vector<uint64_t> count;
};

WordCounts count_words(DocumentReader& reader, int threads);

// `vocab` counts end-of-text, which gets the last id; fewer where the text has no more pairs.
Vocabulary train_bpe(const WordCounts& words, uint32_t vocab);
