// The checkpoints of a run's folder: step_N, where one that is visible is complete.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config.h"

// A folder that appears under its name when it is complete: filled under a temporary name, synced, renamed.
struct NewFolder {
    std::string path, temporary;
    explicit NewFolder(const std::string& path);     // replaces what an interrupted save left
    void publish() const;
};

// Steps of the checkpoints in a run's folder, ascending.
std::vector<int64_t> checkpoint_steps(const std::string& run_dir);

// The newest step_N; empty: none.
std::string newest_checkpoint(const std::string& run_dir);

// Appends {"step": .., "dir": ..} to checkpoints.jsonl, synced.
void acknowledge_checkpoint(const std::string& run_dir, int64_t step, const std::string& dir);

// Deletes all but the newest keep_last (0: none is deleted) and those of steps divisible by keep_every.
void prune_checkpoints(const CheckpointConfig& cfg, const std::string& run_dir);
