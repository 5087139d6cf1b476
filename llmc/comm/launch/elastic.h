// A rank of an agent (run.elastic): a loop over generations.
#pragma once
#include "llmc/comm/launch/run_rank.h"

inline namespace launching {

// REQUIRES: member(). Runs body in each generation that this rank takes part in, until one ends without a
// lost rank; returns its exit code.
int run_elastic(const Config& cfg, const RankBody& body);

}  // namespace launching
