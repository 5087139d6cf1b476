// Documents: the input of ./tokenize, as a stream of chunks in bounded memory.
//
//     .txt              one document
//     .jsonl            a document per line, its "text"
//     .gz, .zst         .txt or .jsonl, packed
//     -                 standard input, one document
//     a*b?.txt          every matching file, sorted
//     any other suffix  as .txt, where the caller asks for it
//
// A chunk ends where its text can be cut without changing an id (safe_cut), or at the end of a document;
// short documents share a chunk. A chunk is a quarter of a megabyte, more only for a longer word, or a longer
// line of a .jsonl. Beyond 256 MB either is an error.
//
// With a validation fraction F, each document is cut in two at the line start nearest to byte (1 - F)
// D of its D, and the two sides go to two sets. A single-line document goes to training whole. If D is not
// known before the end (packed, or a pipe), the text goes through a temporary file first.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/io/files/byte_stream.h"

constexpr size_t kMaxWord = 256'000'000;        // bytes, of a line of a .jsonl as well

struct DocumentSpan {
    size_t begin, end;          // in the chunk's text
    bool starts_document;       // the first span of a document (or of its validation side)
    bool validation;
};

struct Chunk {
    std::vector<char> text;     // kTextPadding bytes more than `size`
    size_t size = 0;
    std::vector<DocumentSpan> spans;

    size_t bytes() const { return size; }
    char* grow(size_t bytes);   // adds room for `bytes`; returns the place
    void append(std::string_view bytes);
};

struct DocumentReader {
    std::vector<std::string> files;
    double validation = 0;          // F
    std::string spool_directory;    // for temporary files
    size_t chunk_bytes = 1 << 18, max_word = kMaxWord;
    uint64_t total_bytes = 0;       // of every file; 0: not known
    uint64_t documents = 0;         // begun so far
    std::function<void()> waiting;  // called now and then while a text goes through a temporary file

    // Resolves globs, and checks names and types. as_text: every file is a document.
    DocumentReader(const std::vector<std::string>& inputs, double validation, std::string spool_directory,
                   bool as_text = false);
    // A single document: the bytes of a file, unpacked, of any name and kind. `input` may be a glob that
    // matches a single file.
    static DocumentReader whole_file(const std::string& input);

    bool next(Chunk& chunk);        // false at the end of the last file
    // Bytes read of total_bytes; a text through a temporary file counts half in each of its two passes.
    uint64_t position() const;

   private:
    DocumentReader() = default;
    bool as_text = false;
    size_t next_file = 0;
    uint64_t done_bytes = 0;                    // of files before
    std::unique_ptr<ByteStream> stream;
    bool spooling = false;
    uint64_t packed_bytes = 0, spooled_bytes = 0;   // of a stream from a temporary file
    bool json_lines = false;
    std::string rest;                           // of a text: bytes read, but not yet in a chunk
    std::vector<char> lines;                    // of a .jsonl file: [line_begin, line_end) as well
    size_t line_begin = 0, line_end = 0;
    uint64_t line = 0;                          // of a .jsonl file
    bool at_start = true;                       // the next span starts a side of a document
    bool in_validation = false;
    uint64_t text_left = 0;                     // of a text with a cut: bytes until the cut

    bool open_next();
    void close_stream();
    void spool();
    void add_text(Chunk& chunk);
    void add_lines(Chunk& chunk);
    // The next line of a .jsonl without its newline; after the last newline, the remaining bytes.
    std::string_view next_line(bool& last);
};

// Place to cut a document of `text` for the fraction F; the text's size if there is no valid place.
size_t validation_cut(std::string_view text, double fraction);
uint64_t validation_cut(int fd, uint64_t size, double fraction, const std::string& path);
