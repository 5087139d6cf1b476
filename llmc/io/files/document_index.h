// The index of a shard's documents: a file NAME.idx beside NAME.bin.
//
//     8 int32 header
//         [0] magic 20241120
//         [1] version 1
//         [2] tokens of the shard
//         [3] documents that begin in the shard: the number of offsets
//         [4] id of end-of-text
//         [5] 0
//         [6] [7] XXH3 of the offsets, 64 bits, low and high half
//     uint32 offsets of the documents' first tokens in the shard, ascending, little endian
//
// A document starts with end-of-text, so the shard has the same information: the index saves a pass over the
// tokens. A document may go on in the next shard.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "llmc/io/files/shard.h"

inline namespace files {

constexpr size_t kIndexHeaderBytes = 32;

struct DocumentIndex {
    int32_t eot = 0;                    // id of end-of-text
    std::vector<uint32_t> starts;       // the offsets
};

std::string index_path(const std::string& shard_path);

// The index beside the shard, if the file exists. Refuses an index that is damaged or belongs to another
// shard, by size, counts, hash and order, and whether 64 of the offsets are at an end-of-text.
std::optional<DocumentIndex> read_index(const ShardFile& shard);

// The same by a pass over the shard. read: called with the number of bytes read at a time.
DocumentIndex scan_documents(const ShardFile& shard, int32_t eot,
                             const std::function<void(uint64_t)>& read = {});

// Refuses an index that differs from a pass over the shard.
void compare_index(const DocumentIndex& index, const ShardFile& shard,
                   const std::function<void(uint64_t)>& read = {});

std::string index_text(const DocumentIndex& index, uint64_t tokens);     // content of the file

// Appends the offset of each eot in ids. at: offset of ids[0] in the shard.
void append_starts(std::span<const uint16_t> ids, uint32_t eot, uint64_t at, std::vector<uint32_t>& starts);
void append_starts(std::span<const uint32_t> ids, uint32_t eot, uint64_t at, std::vector<uint32_t>& starts);

}  // namespace files
