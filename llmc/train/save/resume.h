// Whether a run starts anew or goes on, and from what.
#pragma once
#include <optional>
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/comm/axis.h"
#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/save/recover.h"

// A checkpoint to go on from, or to take weights from.
struct Origin {
    std::string folder;
    Manifest manifest;
    Config settings;                                // of the run that saved it, resolved
};

// A file that rank 0 makes in run.dir has to be there for all. sees: whether a file is there.
void check_shared(const std::string& run_dir, const Axis& world, bool (*sees)(const std::string&));

// checkpoint.resume: the newest checkpoint of run.dir that verifies, the folder that it names, or none.
// Damaged ones are named and set aside; exit code 79 where there were checkpoints and none is left. A folder
// that is named may have no later ones in run.dir, among which the new ones would be lost. All ranks call
// it; rank 0 reads run.dir, which every host has to see.
std::optional<Origin> find_origin(const Config& cfg, const Axis& world, const Disk& disk = posix_disk());

// The checkpoint that find_origin will find. Only looks, reads no hashes; every process for itself.
struct Foreseen {
    bool any;                                       // there are checkpoints
    std::optional<Origin> origin;                   // none: no checkpoint is complete
};
Foreseen foresee_origin(const Config& cfg);

// What the settings leave open and the checkpoint has resolved: model.vocab, data.tokenizer (the file, else
// the copy in the checkpoint). Its train.micro_batch, which has to fit, is returned to fitting_micro_batch().
// Its model.init goes before another, which has to be a possible one. Without a checkpoint: no change, 0.
int adopt_open_settings(Config& cfg, const std::optional<Origin>& origin, bool prints);

// The settings of a run that goes on, resolved: prints what changed, and refuses what changes the math.
void check_settings(const Config& cfg, const Origin& origin, bool prints);

// The newest checkpoint of a run that verifies, for reading only; empty: there are none. Damaged ones are
// passed over with a warning; where no other is left, exit code 79. All ranks of `world` together: rank 0
// reads.
std::string newest_checkpoint(const std::string& run_dir, const Axis& world = {});

// A folder step_N. Every file has to be there in full; hashes are not read.
Origin open_checkpoint(const std::string& folder);
// Refuses a model.init that names nothing: no such form, folder or file. Weights are not read.
void check_init(const std::string& init);
// model.init, where it is a folder: verified by rank 0. All ranks together.
Origin open_init(const std::string& init, const Axis& world = {}, Check check = Check::Hashes);
