// Verification: checks the files of a checkpoint against its manifest, and sets a damaged one aside.
#pragma once
#include <optional>
#include <string>

#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"

inline namespace saves {

struct Verified {
    std::optional<Manifest> manifest;       // if the checkpoint passes
    std::string problem;                    // else: file, tensor if known, and the error
    int error = 0;                          // errno of a file that could not be read and may be whole
};
// Head: the manifest's hash and settings, and no other file; files and pieces are left out. Sizes: the whole
// manifest, and every file's size.
enum class Check { Head, Sizes, Hashes };
Verified verify_checkpoint(const Disk& disk, const std::string& folder, Check check = Check::Hashes);
// Verifies run.dir/step_N; the manifest has to be of that step.
Verified verify_step(const Disk& disk, const std::string& run_dir, int64_t step,
                     Check check = Check::Hashes);

// A checkpoint that this process reads: no run prunes it meanwhile. The lock is a shared flock of its
// manifest; where the file system has none, or the checkpoint is gone, `lock` is empty.
struct HeldCheckpoint {
    std::string folder;
    Fd lock = {};
};
HeldCheckpoint hold_checkpoint(const std::string& folder);

inline constexpr std::string_view kDamaged = ".damaged";
// Renames a path to path.damaged, or to the first free path.damaged-N; `to` is the new name. 0 or errno.
int set_aside(const Disk& disk, const std::string& path, std::string* to);

}  // namespace saves
