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

// All settings, a line each.
std::string settings_text(const Config& cfg, const std::string& task);
// The first setting in which two such texts differ, and what it is in each; empty: in none. among: "ranks";
// a, b: "on rank 0".
std::string settings_difference(const std::string& text_a, const std::string& text_b, const char* among,
                                const std::string& a, const std::string& b);

}  // namespace comm
