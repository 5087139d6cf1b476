// The vocabulary in a GGUF file's metadata. Mistakes end in CHECK_INPUT.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/files/gguf.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

// The values of tokenizer.ggml.*, as they stand in the file; ids that are not there are -1.
struct GgufVocabulary {
    std::string model, pre;                 // "gpt2" for byte-level BPE; the name of a pre-tokenization
    std::vector<std::string> tokens, merges;
    // 1: a token in GPT-2's characters; others: an added token's text, 4 of one that is found in every text
    std::vector<int32_t> token_type;
    int64_t bos_token_id = -1, eos_token_id = -1, unknown_token_id = -1;
    int add_bos_token = -1, add_eos_token = -1;     // 0: no, 1: yes, -1: not there
    std::string chat_template;              // empty: not there
};

bool has_vocabulary(const GgufFile& file);
// Reads the values, and checks their types and counts. REQUIRES: has_vocabulary().
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

// name: the file's, for messages.
Vocabulary vocabulary_of_gguf(const GgufVocabulary& gguf, const std::string& name);

bool is_gguf(const std::string& path);      // by the file's first bytes

// The values to write for this vocabulary in a model of `ids` ids. Ids beyond the vocabulary are named
// "[unused 50257]" and have the type unused. A vocabulary without BOS or EOS writes end-of-text in its place:
// without a BOS in the file llama.cpp uses id 11.
GgufVocabulary gguf_of_vocabulary(const Vocabulary& v, size_t ids);

}  // namespace text
