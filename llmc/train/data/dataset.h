// Room train/data: which tokens a sample has; micro-batches of samples, read ahead by a thread.
// Called by train/step, train/run and train/save (hashes of the files).
// The room knows the index of a rank among the data-parallel ranks. It knows no mesh and no model.
//
// The tokens of a sample: a pure function of (seed, sample index).
//
// A set is a stream of tokens, its shards joined in the order of their names. With context T, row i is
// tokens [iT, iT + T]: T inputs and T targets; or rows begin with documents (packing.h). World size,
// micro-batch and accumulation decide which rank computes a sample, never its tokens.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/io/files/shard.h"
#include "llmc/train/data/packing.h"

inline namespace data {

// A corpus: the shards of a glob.
struct TokenStream {
    std::string glob;
    std::vector<ShardFile> shards;
    std::vector<uint64_t> first;         // index of each shard's first token; one more at the end
    uint64_t rows = 0;
    std::optional<PackedRows> packed;    // of rows that begin with a document
    int64_t begin = -1;                  // the id that begins a document; -1: not known

    uint64_t tokens() const { return first.back(); }
    // Tokens i .. i + count - 1 of the stream; an id of `vocab` or more ends in fatal() with the shard's
    // name.
    void read(uint64_t i, size_t count, int vocab, int32_t* out) const;
    // T inputs and their targets.
    void read_row(uint64_t row, int T, int vocab, int32_t* out) const;
};

struct Dataset {
    std::string key;                     // "data.train", for messages
    std::vector<TokenStream> streams;
    std::vector<uint64_t> weights;       // shares of the streams' tokens in units of 2^-32; they sum to 2^32
    int T = 0, vocab = 0;
    uint64_t seed = 0;
    bool shuffle = false;
    int32_t mask_eot = -1;               // begins a document under model.document_mask; -1: no mask

    // Inputs and targets of sample i: tokens[0..T], T + 1 of them.
    void sample(uint64_t i, int32_t* tokens) const;

    uint64_t rows() const;
    uint64_t tokens() const;
    size_t shards() const;
};

// How a stream is divided into rows, and whether a row's documents are apart for the model. Documents of
// data.tokenizer begin with `eot`, or with `other` where the stream's first token is `other`; -1: not known
// (packing.h).
struct RowRule {
    RowKind kind = RowKind::Stream;
    int64_t eot = -1, other = -1;
    bool masks = false;
    DocumentScans* scans = nullptr;     // of pack_documents()
};

// Opens and validates: the files exist, whole, with at least a row in each corpus.
Dataset open_dataset(const std::string& key, const std::vector<Corpus>& corpora, int T, uint64_t seed,
                     bool shuffle, const RowRule& rule = {});

// Share of the tokens that are in no row, as rows begin with documents; none: rows of a stream.
std::optional<double> cut_off(const Dataset& set);

// Passes of `samples` samples through each corpus: 1 is every row once.
struct Epochs { std::string glob; double count; };
std::vector<Epochs> epochs_of(const Dataset& set, double samples);

// The tokenizer of a run's ids; hash 0: not known.
struct KnownTokenizer {
    uint64_t hash = 0;
    std::string said_by;       // a setting, or the path of a shard
};
// From the first shard that names a tokenizer.
KnownTokenizer tokenizer_of(const Dataset& set);

// Checks that every id is below vocab, and that no shard comes from another tokenizer. Shards without a
// largest id in their header are read through, up to `budget` bytes; returns the remaining budget. Later rows
// are checked when loaded.
inline constexpr uint64_t kScanBytes = 1'000'000'000;
uint64_t validate_ids(Dataset& set, int vocab, const KnownTokenizer& tokenizer = {},
                      uint64_t budget = kScanBytes);

// The vocabulary in the shards' headers; 0: no shard has it.
int vocab_of(const Dataset& set);

// A permutation of [0, n) as a function: a Feistel network on the next power of four, walked until inside.
uint64_t permute(uint64_t i, uint64_t n, uint64_t key, uint64_t stream);

// The stream of sample i, and the number of earlier samples of that stream. At every i the shares are exact:
// to half a sample with two streams, to two samples with any number of streams.
struct Pick { size_t stream; uint64_t index; };
Pick pick(uint64_t i, const std::vector<uint64_t>& weights);

}  // namespace data
