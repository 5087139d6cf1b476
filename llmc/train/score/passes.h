// Requests as calls of the model: sequences of similar length together; the shared beginning of a document's
// sequences is computed once.
//
// Documents whose shared beginnings have similar lengths form a group: a pass for the beginnings, cut to the
// shortest of these lengths, then passes for the rest, with the tokens that were cut. Groups do not depend on
// the mesh: every mesh computes the same passes.
#pragma once
#include <span>

#include "llmc/model/score_pass.h"
#include "llmc/train/score/requests.h"

struct PassLimits {
    int rows;               // tokens of a pass
    int joined;             // tokens of a pass together with the beginnings before its sequences
    int pass_cost = 0;      // of a pass besides its tokens, in tokens: padding is cheaper than another
};

using PassGroup = std::vector<ScorePass>;      // in the order of their computation

// REQUIRES: a request has at most limits.rows + 1 tokens. share: false computes each sequence whole.
std::vector<PassGroup> pass_groups(std::span<const Request> requests, const PassLimits& limits,
                                   bool share = true);

// The passes of data-parallel rank `index` of `size`. A group goes to the rank with the fewest tokens so far.
// Ranks with fewer passes receive dummy one-token passes, so that all ranks run equally many.
std::vector<ScorePass> passes_of_rank(const std::vector<PassGroup>& groups, int index, int size);

// Tokens that the passes compute, padding included.
int64_t tokens_of(std::span<const ScorePass> passes);
