// The checkpoints of a run's folder: step_N, where one that is visible is complete.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "llmc/base/config.h"

// A folder that appears under its name when it is complete: filled under a temporary name, synced, renamed.
// Removed again if it was not published.
struct NewFolder {
    std::string path, temporary;
    explicit NewFolder(const std::string& path);     // replaces what an interrupted save left
    NewFolder(const NewFolder&) = delete;
    ~NewFolder();
    void publish() const;
};

// The folder of a new run: one that can be made and written to, and holds no run. Leaves nothing behind.
void check_run_dir(const std::string& dir);

// model.init where it is a folder: it has to be a checkpoint's.
void check_init(const std::string& dir);

// Steps of the checkpoints in a run's folder, ascending.
std::vector<int64_t> checkpoint_steps(const std::string& run_dir);

// The newest step_N; empty: none.
std::string newest_checkpoint(const std::string& run_dir);

// Appends {"step": .., "dir": ..} to checkpoints.jsonl, synced.
void acknowledge_checkpoint(const std::string& run_dir, int64_t step, const std::string& dir);

// Deletes all but the newest keep_last (0: none is deleted) and those of steps divisible by keep_every.
void prune_checkpoints(const CheckpointConfig& cfg, const std::string& run_dir);
