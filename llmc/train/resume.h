// Whether a run starts anew or goes on, and from what.
#pragma once
#include <optional>
#include <string>

#include "llmc/base/config.h"
#include "llmc/comm/axis.h"
#include "llmc/io/disk.h"
#include "llmc/io/manifest.h"

// A checkpoint to go on from, or to take weights from.
struct Origin {
    std::string folder;
    Manifest manifest;
};

// checkpoint.resume: the newest checkpoint of run.dir that verifies, the folder that it names, or none.
// Damaged ones are named and set aside; exit code 79 where there were checkpoints and none is left. All ranks
// call it; rank 0 reads run.dir, which every host has to see.
std::optional<Origin> find_origin(const Config& cfg, const Axis& world, const Disk& disk = posix_disk());

// The settings of a run that goes on: prints what changed, and refuses what changes the math.
void check_settings(const Config& cfg, const Origin& origin, bool prints);

// The newest checkpoint of a run by its manifest, for reading only; empty: none.
std::string newest_checkpoint(const std::string& run_dir);

// A folder step_N. Every file has to be there in full; hashes are not read.
Origin open_checkpoint(const std::string& folder);
Origin open_init(const std::string& init);          // model.init, where it is a folder
