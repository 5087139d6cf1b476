// What a run goes on from: the newest checkpoint that verifies.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"

struct Verified {
    std::optional<Manifest> manifest;       // when all is well
    std::string problem;                    // else: which file, which tensor where it is one, what is wrong
    int error = 0;                          // errno where a file could not be read: it may be whole
};
enum class Check { Sizes, Hashes };         // Sizes: the manifest, and that every file is there and whole
Verified verify_checkpoint(const Disk& disk, const std::string& folder, Check check = Check::Hashes);
// The same of run.dir/step_N, whose manifest has to be of that step.
Verified verify_step(const Disk& disk, const std::string& run_dir, int64_t step,
                     Check check = Check::Hashes);

struct Recovery {
    std::optional<Manifest> manifest;       // none: there is nothing to go on from
    std::string folder;
    std::vector<std::string> damaged;       // a line each: what was set aside, and why
    bool hopeless = false;                  // there were checkpoints, now or before, and none verifies
};

// Removes what interrupted saves and starts have left.
inline constexpr const char* kSharedProbe = "shared.tmp-";      // of starts that look whether it is shared
void remove_leftovers(const Disk& disk, const std::string& run_dir);

// Does that, sets damaged checkpoints aside (step_N.damaged) and acknowledges the one found where that is
// missing. It may be interrupted anywhere, and run again. What cannot be read is not touched: CHECK_INPUT.
Recovery recover(const Disk& disk, const std::string& run_dir);

// Renames a path to path.damaged, or to the first path.damaged-N that is free, which is `to`. 0 or errno.
int set_aside(const Disk& disk, const std::string& path, std::string* to);

// Whether metrics.jsonl has the row with which a finished run ends.
bool has_done_row(const Disk& disk, const std::string& path);
// Cuts metrics.jsonl back: rows of steps after this one go, and a last line that is not whole. Rows are in
// the order of their steps, but for single rows with a wrong step, which decide nothing. step -1: all goes.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step);
