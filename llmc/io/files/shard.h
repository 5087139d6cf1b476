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
#include <span>
#include <string>
#include <vector>

#include "llmc/base/files.h"

constexpr size_t kShardHeaderBytes = 1024;
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

// Suffix of a shard until its set is complete: excluded from globs of *.bin.
inline constexpr const char* kUnfinished = ".new";

// Writes PREFIX_000000.bin, PREFIX_000001.bin, ... under unfinished names; publish() renames them. An earlier
// set stays whole where something fails on the way.
struct ShardWriter {
    std::string prefix;
    uint32_t vocab;
    uint64_t tokenizer_hash, shard_tokens;
    int id_bytes;
    std::vector<NewFile> pending;   // the open shard; empty: no shard is open
    std::vector<std::string> paths; // of every shard, the open shard included
    uint64_t tokens = 0;            // in the open shard
    uint64_t total = 0;             // in every shard
    uint32_t largest = 0;           // in the open shard

    ShardWriter(std::string prefix, uint32_t vocab, uint64_t tokenizer_hash, uint64_t shard_tokens);
    void append(std::span<const uint16_t> ids);     // where id_bytes is 2
    void append(std::span<const uint32_t> ids);     // where id_bytes is 4
    void close();                                   // the last shard; publish() renames the shards

   private:
    void append_bytes(const void* ids, uint64_t count);
    void close_shard();
};

// Renames all shards of a set, of training and of validation. REQUIRES: the writers are closed.
void publish(std::span<const ShardWriter> halves);
