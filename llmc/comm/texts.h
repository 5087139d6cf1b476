// Texts of all ranks on rank 0.
#pragma once
#include <string>
#include <vector>

#include "llmc/comm/axis.h"

// Returns every rank's text on rank 0, and nothing on other ranks, which need memory for a chunk of a text at
// a time. All ranks together.
std::vector<std::string> gather_texts(const Axis& world, const std::string& own);
