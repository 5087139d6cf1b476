// Encodes documents to token shards, on every core.
#pragma once
#include <string>
#include <vector>

#include "llmc/io/corpus/documents.h"
#include "llmc/io/files/shard_writer.h"
#include "llmc/io/text/tokenizer.h"

struct EncodeOptions {
    std::string prefix;             // PREFIX_train_000000.bin, ..., PREFIX_val_000000.bin, ...
    uint64_t shard_tokens;
    int threads;
    uint64_t indexed_tokens = kIndexedTokens;       // tokens of a shard that gets an index
};

// The name of a token that ends documents, and how often it stands in the texts.
struct EndName {
    std::string name;
    uint64_t count = 0;
};

struct EncodeResult {
    uint64_t documents = 0, bytes = 0, train_tokens = 0, val_tokens = 0;    // bytes: of encoded text
    std::vector<EndName> ends = {};     // <|endoftext|>, and the tokenizer's own
    uint64_t removed = 0;               // shard files of an earlier, longer set
    std::vector<std::string> shards = {};
};

// Replaces the sets of the prefix: removes the shards of an earlier, longer set.
EncodeResult encode_set(const Tokenizer& tokenizer, DocumentReader& reader, const EncodeOptions& options);
