// Training of a byte-level BPE: from the 256 bytes, the most frequent pair of neighbours becomes a token,
// again and again (Sennrich, Haddow, Birch 2016), within pre-tokens.
//
// Merges equal Hugging Face's BpeTrainer (min_frequency 0, the byte-level initial alphabet). Among equally
// frequent pairs, the smaller ids win. Bytes have their ids in the order of GPT-2's characters. A pair with
// the text of a token becomes the existing token. The counting follows Hugging Face's exactly, see the .cpp.
// A pair longer than kMaxTokenBytes stays two tokens, as with Hugging Face's max_token_length.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/corpus/documents.h"
#include "llmc/io/text/tokenizer.h"

inline namespace corpus {

constexpr size_t kMaxTokenBytes = 65535;

// Pre-tokens with their counts.
struct WordCounts {
    std::string text;                   // of every word, without separators
    std::vector<uint32_t> length;
    std::vector<uint64_t> count;
};

WordCounts count_words(DocumentReader& reader, int threads, const Pattern& pattern = patterns()[0]);

// CHECK_INPUT: a size, or names of added tokens, that no vocabulary can have.
void check_vocabulary(uint32_t vocab, const std::vector<std::string>& special);

// Trains a vocabulary of `vocab` ids, fewer if the text runs out of pairs. End-of-text is counted, as the
// last id but for those of `special`, names of added tokens, which no merge yields.
Vocabulary train_bpe(const WordCounts& words, uint32_t vocab, const Pattern& pattern = patterns()[0],
                     const std::vector<std::string>& special = {});

}  // namespace corpus
