// Encodes documents to token shards, on every core.
#pragma once
#include <string>
#include <vector>

#include "llmc/io/corpus/documents.h"
#include "llmc/io/files/shard_writer.h"
#include "llmc/io/text/tokenizer.h"

inline namespace corpus {

struct EncodeOptions {
    std::string prefix;             // PREFIX_train_000000.bin, ..., PREFIX_val_000000.bin, ...
    uint64_t shard_tokens;
    int threads;
    uint64_t indexed_tokens = kIndexedTokens;       // tokens of a shard that gets an index
};

struct EncodeResult {
    uint64_t documents, bytes, train_tokens, val_tokens;    // bytes: of encoded text
    uint64_t removed;                   // shard files of an earlier, longer set
    std::vector<std::string> shards;
};

// Replaces the sets of the prefix: removes the shards of an earlier, longer set.
EncodeResult encode_set(const Tokenizer& tokenizer, DocumentReader& reader, const EncodeOptions& options);

}  // namespace corpus
