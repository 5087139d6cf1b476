// A call of model/scorer.h, as the host describes the call: sequences of equal length, padded at the end.
#pragma once
#include <cstdint>
#include <vector>

// Tokens of a sequence; of a longer context the last are scored. Bounds the memory of a long context.
inline constexpr int kMostScored = 8192;

struct ScorePass {
    int B, T;                               // sequences, tokens of each
    int t0 = 0;                             // tokens of the shared prefix before each sequence
    bool is_prefix = false;                 // the sequences are prefixes for later passes, without scores
    std::vector<int32_t> tokens = {};       // (B, T)
    std::vector<int32_t> from = {};         // (B), with t0: prefix of each sequence, an index into the
                                            // latest prefix pass

    // An entry for each scored token: row in (B, T) of the token before; the token; its request.
    std::vector<int32_t> rows = {}, targets = {}, requests = {};
};

struct TokenScore {
    double logprob;                         // in nats
    bool likeliest;                         // of equally likely tokens, the first is
};
