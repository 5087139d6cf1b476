// What --plan prints of times and meshes: tables, or JSON.
#pragma once
#include <string>

#include "llmc/base/json_value.h"
#include "llmc/train/plan/search.h"

// One object: memory_bytes, memory, fits, params, step_seconds, tokens_per_second, mfu, bubble,
// communication_exposed, goodput, mesh. Times are null without a machine.
Json json_of(const Estimate& e, bool timed);
Json json_of(const MemoryParts& m);
// command: of the best; empty where nothing fits.
Json json_of(const Search& s, const std::string& command);

// All steps of a config on a machine. 0 where the machine states neither watts nor a price.
struct RunCost {
    double seconds, kwh, dollars;
};
RunCost cost_of(const Estimate& e, const Machine& machine);

// Below the memory plan: step time, what the step is made of; days, energy and price of all steps.
std::string time_text(const Estimate& e, const Machine& machine);
// The best meshes as a table, why the others lose, and the command of the best.
std::string search_text(const Search& s, const Machine& machine, const std::string& command);
// A row for each number of GPUs: time, energy and price of the run, and its mesh.
std::string counts_text(const std::vector<Estimate>& best, const Machine& machine);
