// The vocabulary in a GGUF file's metadata. Mistakes end in CHECK_INPUT.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/io/files/gguf.h"
#include "llmc/io/text/vocabulary.h"

// The values of tokenizer.ggml.*, as they stand in the file; ids that are not there are -1.
struct GgufVocabulary {
    std::string model, pre;                 // "gpt2" for byte-level BPE; the name of a pre-tokenization
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> token_type;        // 1: of the merges' characters; others: text of an added token
    int64_t bos_token_id = -1, eos_token_id = -1, unknown_token_id = -1;
    int add_bos_token = -1;                 // 0: no, 1: yes, -1: not there
    std::string chat_template;              // empty: not there
};

bool has_vocabulary(const GgufFile& file);
// Checks that the values have the types and counts of a vocabulary. REQUIRES: has_vocabulary().
GgufVocabulary read_gguf_vocabulary(const GgufFile& file);

// `name` is the file's, for messages.
Vocabulary vocabulary_of_gguf(const GgufVocabulary& gguf, const std::string& name);

bool is_gguf(const std::string& path);      // by the file's first bytes

// What a GGUF file says of this vocabulary, in a model of `ids` ids: those beyond the vocabulary's have names
// and are marked unused. Without a BOS in the file llama.cpp takes id 11: where the vocabulary has no BOS or
// EOS, end-of-text.
GgufVocabulary gguf_of_vocabulary(const Vocabulary& v, size_t ids);
