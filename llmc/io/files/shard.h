// Room io/files: formats of files, and the disk: token shards, weight files, manifests, rows that grow.
// Called by io/text, io/corpus, train/data, train/save and train/log.
// The room knows a tensor as a name, a shape and bytes. It knows no device, no model and no setting.
//
// Token shards: llm.c's format.
//
//     256 int32 header
//         [0] magic     20240520: u16 ids      20240801: u32 ids
//         [1] version   1                      7
//         [2] number of tokens
//         ours, where llm.c leaves zeros and reads nothing:
//         [3] vocabulary size, end-of-text included; 0: not known, like the next fields
//         [4] largest id in the shard
//         [5] [6] tokenizer hash, low and high half
//     ids, little endian
//
// A set is a stream: its shards joined in the order of their names. A document starts with end-of-text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/disk/files.h"

inline namespace files {

constexpr int32_t kShardMagic16 = 20240520, kShardVersion16 = 1;
constexpr int32_t kShardMagic32 = 20240801, kShardVersion32 = 7;
constexpr size_t kShardHeaderBytes = 1024;
struct ShardHeader {
    int32_t magic, version, tokens, vocab, largest, hash_low, hash_high, zeros[249];
};
static_assert(sizeof(ShardHeader) == kShardHeaderBytes);

constexpr uint64_t kMaxShardTokens = 0x7fffffff;      // the header counts in an int32
constexpr uint32_t kMaxVocabulary = 1 << 20;          // ids

struct ShardInfo {
    std::string path;
    uint64_t tokens = 0;
    int id_bytes = 2;               // 2 or 4
    uint32_t vocab = 0;             // 0: not known
    uint32_t largest = 0;           // where has_largest
    bool has_largest = false;
    uint64_t tokenizer_hash = 0;    // 0: not known
};

struct ShardFile {
    Fd fd;
    ShardInfo info;
};

// Suffix of the index of a shard's documents (document_index.h).
inline constexpr const char* kIndexSuffix = ".idx";

// The shards that match a glob, sorted by name, without their indexes.
std::vector<std::string> shard_files(const std::string& glob);

// Opens and validates header and size; the error for any other file names the likely kind of file.
ShardFile open_shard_file(const std::string& path);

// Tokens [first, first + count) into out. Reads by position: safe from several threads.
void read_tokens(const ShardFile& shard, uint64_t first, uint64_t count, int32_t* out);

// Largest id of the shard; reads the whole file.
uint32_t scan_largest(const ShardFile& shard);

// A file that is there while ./tokenize encode replaces the shards of PREFIX, training and validation: from
// before the first rename until the last shard of the earlier set is gone.
std::string replacement_mark(const std::string& prefix);

// Refuses shards of a set whose replacement was interrupted: they may be of two sets.
void check_sets(const std::vector<ShardInfo>& shards);

}  // namespace files
