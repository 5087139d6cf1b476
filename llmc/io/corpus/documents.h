// Room io/corpus: the work of ./tokenize: documents of many files, a vocabulary trained on them, shards.
// Called by ./tokenize alone. The room knows no training run: it leaves a tokenizer file and shards.
//
// Documents: the input of ./tokenize, as a stream of chunks in bounded memory. inputs.h has the kinds of
// files.
//
//     text         one document; with `split`, the parts between this text, without line breaks beside it
//     JSON lines   a document per line: the string `field` of its object
//
// A text without a character is no document; a byte order mark is dropped, UTF-16 is an error.
//
// A chunk ends where its text can be cut without changing an id (safe_cut), or at the end of a document;
// short documents share a chunk. A chunk is a quarter of a megabyte, more only for a longer word, or a longer
// line or part. Beyond 256 MB either is an error.
//
// With a validation fraction F, held_out.h chooses which text goes to a second set. If the size of a text is
// not known before its end (packed, or a pipe), the text goes through a temporary file first.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/corpus/held_out.h"
#include "llmc/io/corpus/inputs.h"
#include "llmc/io/files/byte_stream.h"
#include "llmc/io/text/tokenizer.h"

inline namespace corpus {

constexpr size_t kMaxWord = 256'000'000;        // bytes, of a line of a .jsonl as well

enum class BadLines { Stop, Skip, Replace };    // Replace: mended (mend_line.h), else skipped

struct TextRules {
    As as = As::Refused;
    std::string split;              // empty: a text is one document
    std::string field = "text";
    BadLines bad_lines = BadLines::Stop;
};

// The name of a token that ends documents, and how often it stands in the texts.
struct EndName {
    std::string name;
    uint64_t count = 0;
};

// How many there are, and the place of the first, FILE:LINE.
struct Places {
    uint64_t count = 0;
    std::string first;
    void add(const std::string& place) {
        if (count++ == 0) first = place;
    }
};

struct DocumentSpan {
    size_t begin, end;          // in the chunk's text
    bool starts_document;       // the first span of a document (or of its validation side)
    bool validation;
    bool ends_document;         // the last span, likewise; may be empty
};

struct TextChunk {
    std::vector<char> text;     // kTextPadding bytes more than `size`
    size_t size = 0;
    std::vector<DocumentSpan> spans;

    size_t bytes() const { return size; }
    char* grow(size_t bytes);   // adds room for `bytes`; returns the place
    void append(std::string_view bytes);
};

struct DocumentReader {
    Inputs inputs;
    TextRules rules;
    double validation = 0;          // F
    std::string spool_directory;    // for temporary files
    size_t chunk_bytes = 1 << 18, max_word = kMaxWord;
    uint64_t total_bytes = 0;       // of every file; 0: not known
    uint64_t documents = 0;         // begun so far
    Places empty, skipped, mended;  // texts left out; bad lines left out, and mended
    std::vector<EndName> ends = {{"<|endoftext|>"}};
    Places not_utf8;                // text files with other bytes, which stay as they are
    std::function<void()> waiting;  // called now and then while a text goes through a temporary file

    // CHECK_INPUT: unknown names and kinds, rules that no input needs.
    DocumentReader(const std::vector<std::string>& inputs, double validation, std::string spool_directory,
                   const TextRules& rules = {});
    // A single document: the bytes of a file, unpacked but unchanged, of any name and kind. `input` may be a
    // glob that matches a single file.
    static DocumentReader whole_file(const std::string& input);

    // Chunks end where the tokenizer's added tokens allow it as well. It outlives the reader.
    void cut_for(const Tokenizer& tokenizer);
    bool next(TextChunk& chunk);        // false at the end of the last file
    // Bytes read of total_bytes; a text through a temporary file counts half in each of its two passes.
    uint64_t position() const;

   private:
    DocumentReader() = default;
    bool raw = false;                           // of whole_file()
    HeldOut held_out;                           // of documents that are chosen whole
    const Tokenizer* tokenizer = nullptr;       // of cut_for()
    size_t next_file = 0;
    uint64_t done_bytes = 0;                    // of files before
    std::unique_ptr<ByteStream> stream;
    bool spooling = false;
    uint64_t packed_bytes = 0, spooled_bytes = 0;   // of a stream from a temporary file
    bool json_lines = false;
    std::string separator;                      // of the documents of a file; empty: it is one
    std::string rest;                           // of a text: bytes read, but not yet in a chunk
    std::vector<char> parts;                    // of a file with a separator: [part_begin, part_end) as well
    size_t part_begin = 0, part_end = 0;
    uint64_t part = 0;                          // number of the part, from 1: the line of a .jsonl
    bool at_start = true;                       // the next span starts a side of a document
    bool in_validation = false;
    uint64_t text_left = 0;                     // of a text with a cut: bytes until the cut
    bool is_utf8_so_far = true;                 // the file

    bool open_next();
    void check_utf8(const TextChunk& chunk, size_t begin);
    size_t skip_mark();
    void close_stream();
    void spool();
    void add_text(TextChunk& chunk);
    void add_parts(TextChunk& chunk);
    size_t put_json_text(std::string_view row, TextChunk& chunk);
    std::string place() const;                  // FILE:LINE of the part
    // The next part of the file without its separator; after the last separator, the remaining bytes.
    std::string_view next_part(bool& last);
};

}  // namespace corpus
