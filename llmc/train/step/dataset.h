// Which tokens a sample is made of: a pure function of (seed, sample index).
//
// A set is one stream of tokens, its shards joined in the order of their names. With context T, row i is
// tokens [iT, iT + T]: T inputs and T targets. World size, micro-batch and accumulation decide who computes a
// sample, never which it is.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/io/files/shard.h"

// One corpus: shards behind a glob.
struct TokenStream {
    std::string glob;
    std::vector<ShardFile> shards;
    std::vector<uint64_t> first;         // index of each shard's first token; one more at the end
    uint64_t rows = 0;

    uint64_t tokens() const { return first.back(); }
    // Token i of the stream and the count - 1 after it; an id of `vocab` or more ends in fatal() that names
    // the shard.
    void read(uint64_t i, size_t count, int vocab, int32_t* out) const;
};

struct Dataset {
    std::string key;                     // "data.train", for messages
    std::vector<TokenStream> streams;
    std::vector<uint64_t> weights;       // shares of the streams' tokens in units of 2^-32; they sum to 2^32
    int T = 0, vocab = 0;
    uint64_t seed = 0;
    bool shuffle = false;

    // Inputs and targets of sample i: tokens[0..T], T + 1 of them.
    void sample(uint64_t i, int32_t* tokens) const;

    uint64_t rows() const;
    uint64_t tokens() const;
    size_t shards() const;
};

// Opens and validates: there are files, whole, with a row or more in each corpus.
Dataset open_dataset(const std::string& key, const std::vector<Corpus>& corpora, int T, uint64_t seed,
                     bool shuffle);

// How often `samples` samples go through each corpus: 1 is every row once.
struct Epochs { std::string glob; double count; };
std::vector<Epochs> epochs_of(const Dataset& set, double samples);

// Whose ids a run's are; hash 0: not known.
struct KnownTokenizer {
    uint64_t hash = 0;
    std::string said_by;       // a setting, or the path of a shard
};
// That of the first shard that names one.
KnownTokenizer tokenizer_of(const Dataset& set);

// Every id has to be below vocab, and no shard made by another tokenizer. Shards that do not say their
// largest id are read through as far as `budget` bytes go, and what is left of them is returned; the rest is
// checked row by row as it is loaded.
inline constexpr uint64_t kScanBytes = 1'000'000'000;
uint64_t validate_ids(Dataset& set, int vocab, const KnownTokenizer& tokenizer = {},
                      uint64_t budget = kScanBytes);

// The vocabulary that the shards name, 0 where none does.
int vocab_of(const Dataset& set);

// A permutation of [0, n) as a function: a Feistel network on the next power of four, walked until inside.
uint64_t permute(uint64_t i, uint64_t n, uint64_t key, uint64_t stream);

// Which stream sample i comes from and how many samples of that stream came before: shares hold at every i to
// within half a sample with two streams, and two samples with any number.
struct Pick { size_t stream; uint64_t index; };
Pick pick(uint64_t i, const std::vector<uint64_t>& weights);
