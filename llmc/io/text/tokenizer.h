// Room io/text: reads tokenizer files, turns text into ids and ids into text, applies chat templates.
// Called by ./tokenize, io/corpus, and train/ for prompts, tasks and exports.
// The room knows one text at a time. It knows no corpus and no model.
//
// A byte-level BPE: the vocabulary and its operations.
//
// Every id but end-of-text (and other added tokens of a foreign file) is a sequence of bytes. With an id for
// each of the 256 single bytes, and without NFC, any bytes can be encoded, and decoding restores the bytes
// exactly. The text "<|endoftext|>" inside an input is ordinary text: encode() yields no control token. Added
// tokens with "special": false are found in every text (added_tokens.h).
//
// How a document begins and ends, in shards and in the samples of training:
//
//     BOS text        where the tokenizer's template, or GGUF's add_bos_token, adds one; else end-of-text
//     ... EOS         where it adds EOS, unless EOS also begins the next document
//
// A text to continue (--generate) begins with what the template adds, and without a template with its prompt.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/files/shard.h"
#include "llmc/io/text/added_tokens.h"
#include "llmc/io/text/vocabulary.h"

inline namespace text {

struct Bpe;       // tables of the encoder, llmc/io/text/bpe.h

struct Tokenizer {
    Vocabulary vocabulary;
    std::shared_ptr<const Bpe> bpe;     // shared by copies
    std::shared_ptr<const AddedTokens> added;
    uint64_t content_hash = 0;

    explicit Tokenizer(Vocabulary v);

    // tokenizer.json, a folder with tokenizer.json or with vocab.bpe and encoder.json (merges.txt and
    // vocab.json at Hugging Face), a .tiktoken file, or a GGUF file. An invalid file ends in CHECK_INPUT.
    // pattern: of files that name none, .tiktoken and GPT-2's two, and with it the family's NFC; nullptr:
    // GPT-2's. A vocabulary of another pattern than the file's is refused.
    static Tokenizer load(const std::string& path, const Pattern* pattern = nullptr);
    void save(const std::string& path) const;        // as Hugging Face's tokenizer.json

    uint32_t vocab_size() const { return vocabulary.size(); }      // end-of-text included
    uint32_t eot() const { return vocabulary.eot; }
    // Ids that begin and end a text, by the tokenizer's file; -1: the file names none.
    int64_t bos() const { return vocabulary.bos; }
    int64_t eos() const { return vocabulary.eos; }
    bool adds_bos() const { return vocabulary.adds_bos; }          // ids of a text begin with bos
    // The first id of a document, and the last; -1: the last is the text's.
    uint32_t document_begin() const { return adds_bos() ? uint32_t(bos()) : eot(); }
    int64_t document_end() const {
        return vocabulary.adds_eos && eos() != int64_t(document_begin()) ? eos() : -1;
    }
    uint64_t hash() const { return content_hash; }                 // the same from any kind of file; never 0

    // control: names of control tokens in the text become their ids.
    // For messages about too many ids: whether one of them is not the file's; may be empty.
    std::string about_end() const;

    std::vector<int32_t> encode(std::string_view text, bool control = false) const;
    // As safe_cut(), for texts in which added tokens are found: no token lies at the place.
    size_t safe_cut(const char* text, size_t n, size_t first) const;
    // The bytes of the ids. End-of-text, and ids outside the vocabulary, have no bytes.
    std::string decode(std::span<const int32_t> ids) const;
    std::string_view bytes_of(uint32_t id) const;                  // end-of-text: empty
    // Bytes of the id's text; 0 for control tokens, and for ids outside the vocabulary.
    size_t text_bytes(uint32_t id) const {
        return id < vocab_size() && !vocabulary.is_control(id) ? vocabulary.text_of(id).size() : 0;
    }
};

// The piece behind a space, with kTextPadding bytes behind it.
std::string with_prefix_space(std::string_view piece);

// The parsers behind load(), one per kind of file. name: for messages. end: by files beside it, for
// vocabularies without one of kEndNames. If `end` is no token either, the parsers append <|endoftext|>.
// json_of_vocabulary(): the text of a tokenizer.json.
Vocabulary vocabulary_of_json(std::string_view content, const std::string& name, const EndOfText& end = {});
Vocabulary vocabulary_of_tiktoken(std::string_view content, const std::string& name);
Vocabulary vocabulary_of_gpt2(std::string_view vocab_bpe, std::string_view encoder_json,
                              const std::string& name, const EndOfText& end = {},
                              const FolderTokens& more = {});
std::string json_of_vocabulary(const Vocabulary& v);

}  // namespace text
