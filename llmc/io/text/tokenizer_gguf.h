// The vocabulary in a GGUF file's metadata.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/text/tokenizer.h"

// The values of tokenizer.ggml.*, as they stand in the file; ids that are not there are -1.
struct GgufVocabulary {
    std::string model, pre;                 // "gpt2" for byte-level BPE; the name of a pre-tokenization
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> token_type;        // 1: of the merges' characters; others: text of an added token
    int64_t bos_token_id = -1, eos_token_id = -1;
    int add_bos_token = -1;                 // 0: no, 1: yes, -1: not there
};

// `name` is the file's, for messages. Mistakes end in CHECK_INPUT.
Tokenizer tokenizer_of_gguf(const GgufVocabulary& gguf, const std::string& name);

// What a GGUF file says of this tokenizer.
GgufVocabulary gguf_of_tokenizer(const Tokenizer& tokenizer);
