// Texts of all ranks on rank 0.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/axis.h"

inline namespace comm {

// On rank 0 returns the texts `own` of all ranks, in the order of the ranks; on other ranks an empty list.
// Texts travel in chunks of 1 MB: other ranks need no more memory. All ranks together.
std::vector<std::string> gather_texts(const Axis& world, const std::string& own);

}  // namespace comm
