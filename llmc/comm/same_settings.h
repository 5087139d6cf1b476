// All ranks of a job have the same settings, or the job ends before anything else is agreed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"

inline namespace comm {

// The texts of all ranks, in the order of the ranks. Every rank calls it together.
using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

// Ends in exit code 78, with the key and two ranks' values, where settings or task (--generate=TEXT) differ.
void check_same_settings(const Config& cfg, const std::string& task, const Exchange& exchange);

}  // namespace comm
