// What --plan prints of times and meshes: tables, or JSON.
#pragma once
#include <string>

#include "llmc/base/json/json_value.h"
#include "llmc/train/plan/run_cost.h"
#include "llmc/train/plan/search_counts.h"

inline namespace plans {

// One object: memory_bytes, memory, fits, params, step_seconds, tokens_per_second, mfu, bubble,
// communication_exposed, goodput, mesh. Times are null without a machine.
Json json_of(const Estimate& e, bool timed);
Json json_of(const BytesByPurpose& m);
// command: of the best; empty where nothing fits.
Json json_of(const Search& s, const std::string& command);

// Below the memory plan: step time, what the step is made of; days, energy and price of all steps.
std::string time_text(const Estimate& e, const Machine& machine);
// The best meshes as a table, why the others lose, and the command of the best.
std::string search_text(const Search& s, const Machine& machine, const std::string& command);
// A row for each number of GPUs that is faster than all smaller numbers: time, energy and price of the run,
// and the mesh. With limits: the best number within the limits, and the command of its mesh.
std::string counts_text(const CountedSearch& found, const ClusterConfig& limits, const Machine& machine,
                        const std::string& command);

}  // namespace plans
