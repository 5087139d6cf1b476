// Arguments of a call of model/infer/scorer.h, in memory of the host.
#pragma once
#include <cstdint>
#include <vector>

inline namespace model {

// Most tokens of a sequence, whatever model.context, to bound the memory. Of more tokens the last are scored.
inline constexpr int kMostScored = 8192;

// Sequences of equal length, padded at the end; their rows follow one another in a pass.
struct Segment {
    int B, T;                               // sequences, tokens of each
    int t0 = 0;                             // tokens of the shared prefix before each sequence
    int kept = 0;                           // with t0: row of the latest prefix pass at which the segment's
                                            // prefixes begin, t0 rows each
};

struct ScorePass {
    std::vector<Segment> segments = {};     // N rows in all
    bool is_prefix = false;                 // the sequences are prefixes for later passes, without scores
    std::vector<int32_t> tokens = {};       // (N)
    std::vector<int32_t> from = {};         // of each sequence: number of its prefix, from row `kept` on

    // An entry for each scored token: row of the token before; the token; its request.
    std::vector<int32_t> rows = {}, targets = {}, requests = {};

    int N() const { return int(tokens.size()); }
};

struct TokenScore {
    double logprob;                         // in nats
    bool likeliest;                         // no token is likelier; of equally likely tokens, the first
};

}  // namespace model
