// What a run goes on from: the newest checkpoint that verifies.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/save/verify.h"

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

// Whether metrics.jsonl has the row with which a finished run ends.
bool has_done_row(const Disk& disk, const std::string& path);
// Cuts metrics.jsonl back: rows of steps after this one go, and a last line that is not whole. Rows are in
// the order of their steps, but for single rows with a wrong step, which decide nothing. step -1: all goes.
void cut_metrics(const Disk& disk, const std::string& path, int64_t step);
