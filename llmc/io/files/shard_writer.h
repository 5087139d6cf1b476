// Writes sets of token shards, with their indexes of documents.
#pragma once
#include <optional>
#include <span>

#include "llmc/base/disk/output_file.h"
#include "llmc/io/files/document_index.h"

inline namespace files {

// Suffix of a shard until its set is complete: excluded from globs of *.bin.
inline constexpr const char* kUnfinished = ".new";

// Shards of fewer tokens have no index of documents: a scan takes less time than the index's file.
inline constexpr uint64_t kIndexedTokens = 1 << 16;

// Writes PREFIX_000000.bin, PREFIX_000001.bin, ... under unfinished names; publish() renames them. An earlier
// set stays whole where something fails on the way. With an eot, the id that begins a document, each shard of
// `indexed_tokens` or more gets an index of its documents beside it.
struct ShardWriter {
    std::string prefix;
    uint32_t vocab;
    uint64_t tokenizer_hash, shard_tokens;
    std::optional<uint32_t> eot;
    uint64_t indexed_tokens = kIndexedTokens;
    int id_bytes;
    std::vector<NewFile> pending;   // the open shard; empty: no shard is open
    std::vector<std::string> paths; // of every shard, the open shard included
    std::vector<std::string> indexes;
    uint64_t tokens = 0;            // in the open shard
    uint64_t total = 0;             // in every shard
    uint32_t largest = 0;           // in the open shard
    std::vector<uint32_t> starts;   // of documents, in the open shard

    ShardWriter(std::string prefix, uint32_t vocab, uint64_t tokenizer_hash, uint64_t shard_tokens,
                std::optional<uint32_t> eot = {});
    void append(std::span<const uint16_t> ids);     // where id_bytes is 2
    void append(std::span<const uint32_t> ids);     // where id_bytes is 4
    void close();                                   // the last shard; publish() renames the shards

   private:
    void append_bytes(const void* ids, uint64_t count);
    void close_shard();
};

// Renames all shards of a set with their indexes, of training and of validation. REQUIRES: the writers are
// closed.
void publish(std::span<const ShardWriter> halves);

}  // namespace files
