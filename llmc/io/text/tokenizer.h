// A byte-level BPE: the vocabulary and its operations.
//
// Every id but end-of-text (and other added tokens of a foreign file) is a sequence of bytes. With an id for
// each of the 256 single bytes, and without NFC, any bytes can be encoded, and decoding restores the bytes
// exactly. The text "<|endoftext|>" inside an input is ordinary text: encode() never yields eot() or another
// added token.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/files/shard.h"
#include "llmc/io/text/vocabulary.h"

struct Bpe;       // tables of the encoder, llmc/io/text/bpe.h

struct Tokenizer {
    Vocabulary vocabulary;
    std::shared_ptr<const Bpe> bpe;     // shared by copies
    uint64_t content_hash = 0;

    explicit Tokenizer(Vocabulary v);

    // tokenizer.json, a folder with tokenizer.json or with vocab.bpe and encoder.json (merges.txt and
    // vocab.json at Hugging Face), a .tiktoken file, or a GGUF file. An invalid file ends in CHECK_INPUT.
    static Tokenizer load(const std::string& path);
    void save(const std::string& path) const;        // as Hugging Face's tokenizer.json

    uint32_t vocab_size() const { return vocabulary.size(); }      // end-of-text included
    uint32_t eot() const { return vocabulary.eot; }
    // Ids that begin and end a text, by the tokenizer's file; -1: the file names none.
    int64_t bos() const { return vocabulary.bos; }
    int64_t eos() const { return vocabulary.eos; }
    bool adds_bos() const { return vocabulary.adds_bos; }          // ids of a text begin with bos
    uint64_t hash() const { return content_hash; }                 // the same from any kind of file; never 0

    std::vector<int32_t> encode(std::string_view text) const;
    // The same, but a name of an added token in the text becomes the token's id. Where names overlap, the
    // leftmost counts, and of several at one place the longest.
    std::vector<int32_t> encode_with_added(std::string_view text) const;
    // The bytes of the ids. End-of-text, and ids outside the vocabulary, have no bytes.
    std::string decode(std::span<const int32_t> ids) const;
    std::string_view bytes_of(uint32_t id) const;                  // end-of-text: empty
};

// The parsers behind load(), one per kind of file. name: for messages. end: the token that ends a text, by
// tokenizer_config.json, for vocabularies without one of kEndNames. If `end` is no token either, the parsers
// append <|endoftext|>. json_of_vocabulary(): the text of a tokenizer.json.
Vocabulary vocabulary_of_json(std::string_view content, const std::string& name,
                              const std::string& end = "");
Vocabulary vocabulary_of_tiktoken(std::string_view content, const std::string& name);
Vocabulary vocabulary_of_gpt2(std::string_view vocab_bpe, std::string_view encoder_json,
                              const std::string& name, const std::string& end = "");
std::string json_of_vocabulary(const Vocabulary& v);
