// Recovery: finds the newest checkpoint that passes verification.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/save/verify.h"

inline namespace saves {

struct Recovery {
    std::optional<Manifest> manifest;       // none: no checkpoint to resume from
    std::string folder;
    std::vector<std::string> damaged;       // a line for each checkpoint that was set aside, with the reason
    bool all_damaged = false;               // checkpoints exist or existed, but none passes verification
};

// Name prefix of the files by which check_shared() tests whether all ranks share run.dir.
inline constexpr const char* kSharedProbe = "shared.tmp-";

// Removes leftovers of interrupted saves and starts.
void remove_leftovers(const Disk& disk, const std::string& run_dir);

// Removes leftovers, sets damaged checkpoints aside (step_N.damaged), and adds a missing acknowledgement of
// the checkpoint found. May be interrupted anywhere, and run again. An unreadable file is not touched:
// CHECK_INPUT.
Recovery recover(const Disk& disk, const std::string& run_dir);

// Whether metrics.jsonl has the last row of a finished run.
bool has_done_row(const Disk& disk, const std::string& path);
// Removes rows of later steps from metrics.jsonl, and an incomplete last line. Rows are in the order of their
// steps; single rows with a wrong step do not count. step -1: removes every row. A row of a rollback belongs
// to the step that it leads to. rollbacks: the next rollback's row goes, with all rows behind it.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step, int64_t rollbacks = 0);

}  // namespace saves
