// A call of model/scorer.h, as the host describes the call: sequences of equal length, padded at the end.
#pragma once
#include <cstdint>
#include <vector>

// Tokens of a sequence; of a longer context the last are scored. Bounds the memory of a long context.
inline constexpr int kMostScored = 8192;

struct ScorePass {
    int B, T;                           // sequences, tokens of each
    int t0 = 0;                         // tokens of the beginning before each sequence
    bool begins = false;                // the sequences are beginnings: kept for later passes, none is scored
    std::vector<int32_t> tokens = {};        // (B, T)
    std::vector<int32_t> from = {};          // (B)     with t0: which sequence of the last pass that begins
    // Of each scored token: the row of the token before, in (B, T); the token; the request that asks.
    std::vector<int32_t> rows = {}, targets = {}, requests = {};
};

struct TokenScore {
    double logprob;                     // in nats
    bool likeliest;                     // of equally likely tokens, the first is
};
