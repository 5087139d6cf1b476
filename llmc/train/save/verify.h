// Verification: checks the files of a checkpoint against its manifest, and sets a damaged one aside.
#pragma once
#include <optional>
#include <string>

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

inline constexpr std::string_view kDamaged = ".damaged";
// Renames a path to path.damaged, or to the first path.damaged-N that is free, which is `to`. 0 or errno.
int set_aside(const Disk& disk, const std::string& path, std::string* to);
