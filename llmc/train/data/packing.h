// Rows that begin with a document (data.rows = documents).
//
// A row of T + 1 tokens takes documents from a buffer of the next 1,000: repeatedly the longest document that
// fits the rest of the row. If every document is too long, the shortest is cut to the rest. Among documents
// of equal length the earliest is taken. A document longer than a row is cut to T + 1 tokens. The last
// documents are left out if they fill no row.
//
// Rows follow from T and the lengths of the documents alone: every rank computes the same rows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "llmc/io/files/document_index.h"

inline namespace data {

// Tokens [start, start + length) of a stream; 8 bytes, as each document has a Passage.
struct Passage {
    uint64_t bits;

    static constexpr int kStartBits = 39;           // bits that a context of 2^24 leaves
    static constexpr uint64_t kMostTokens = (uint64_t(1) << kStartBits) - 1;
    static Passage of(uint64_t start, uint64_t length) { return {length << kStartBits | start}; }
    uint64_t start() const { return bits & kMostTokens; }
    size_t length() const { return size_t(bits >> kStartBits); }
};

struct PackedRows {
    std::vector<Passage> passages;
    std::vector<uint64_t> first = {0};  // first passage of each row; at the end the number of passages
    int32_t eot = 0;                    // end-of-text, the first id of each passage

    uint64_t rows() const { return first.size() - 1; }
    std::span<const Passage> row(uint64_t i) const {
        return std::span(passages).subspan(first[i], first[i + 1] - first[i]);
    }
};

// Fills row after row with documents. add(): the next document of the stream, `tokens` long, at `start`.
struct Packer {
    static constexpr size_t kBuffer = 1000;

    explicit Packer(int T) : length(uint64_t(T) + 1), rest(length) {}
    void add(uint64_t start, uint64_t tokens);
    PackedRows finish();

private:
    void place();

    const uint64_t length;              // of a row
    uint64_t rest;                      // tokens missing in the open row
    // Length and kMostTokens - start, as a Passage; sorted: of equal lengths the earliest comes last.
    std::vector<uint64_t> buffer;
    PackedRows packed;
};

// Indexes of shards without an index file, by the shard's path and the id of end-of-text: rank 0 reads the
// shards through, and other ranks receive its indexes.
using DocumentScans = std::map<std::pair<std::string, int32_t>, DocumentIndex>;

// The rows of a corpus: shards joined in their order, first[i] the place of shard i's first token. A document
// starts with end-of-text. eot: its id; -1: the id that an index names, else GPT-2's. Shards without an index
// file are read through, unless `scans` has their indexes, and their indexes added to `scans`. name: the
// setting and its value, for messages.
PackedRows pack_documents(const std::string& name, std::span<const ShardFile> shards,
                          std::span<const uint64_t> first, int T, int64_t eot,
                          DocumentScans* scans = nullptr);

}  // namespace data
