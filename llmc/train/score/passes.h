// Requests as calls of the model: full passes, whose segments have sequences of similar length; the shared
// beginning of a document's sequences is computed once.
//
// A group of documents is one pass for their beginnings, then passes for the rest of their sequences. Within
// a group, documents with beginnings of similar length form a class. A class shares equally many tokens of
// each beginning, as many as its shortest beginning has; further tokens of a beginning are computed with each
// sequence. Groups do not depend on the mesh: every mesh computes the same passes.
#pragma once
#include <span>

#include "llmc/model/score_pass.h"
#include "llmc/train/score/requests.h"

inline namespace scores {

struct PassLimits {
    int rows;               // tokens of a pass
    int joined;             // tokens of a segment together with the beginnings before its sequences
    int segment_cost = 0;   // fixed cost of a segment, in tokens, which is weighed against padding
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

}  // namespace scores
