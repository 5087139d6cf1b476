// Whether a run starts anew or resumes, and from which checkpoint.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "llmc/base/config/config.h"
#include "llmc/base/numbers/interval.h"
#include "llmc/comm/axis.h"
#include "llmc/io/files/disk.h"
#include "llmc/io/files/manifest.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/run_state.h"

inline namespace saves {

// A checkpoint to resume from, or to take weights from.
struct Origin {
    std::string folder;
    Manifest manifest;
    Config settings;                                // of the run that saved it, resolved
    // Of images in memory: the address of some bytes of a piece, valid until the next call. Null: of files.
    std::function<const std::byte*(const SavedPiece& p, Interval bytes)> bytes_of = nullptr;
    int64_t number = 0;                             // of these images (comm/agents/messages.h)
    std::vector<Origin> with = {};                  // images of train.rollback, the oldest first
    RunState state() const;
};

// folder: a name for messages. Ends with exit code 78 where the manifest's settings are none.
Origin origin_of(const std::string& folder, Manifest manifest);

// By checkpoint.resume: the newest checkpoint of run.dir that passes verification, a named folder, or none.
// Damaged checkpoints are printed and set aside; exit code 79 if checkpoints existed and none is left. A
// named folder must be the last in run.dir, as later folders would be mixed with new ones. All ranks
// together; rank 0 reads run.dir, and every host has to see run.dir.
std::optional<Origin> find_origin(const Config& cfg, const Axis& world, const Disk& disk = posix_disk());

// The newest checkpoint, with what open_head() reads of it: find_origin() finds the same, unless a file of it
// is damaged. No file is changed; every process for itself.
struct Foreseen {
    bool any;                                       // checkpoints exist
    std::optional<Origin> origin;                   // none: no checkpoint has a whole manifest
};
Foreseen foresee_origin(const Config& cfg);

// Settings on auto take the checkpoint's value: model.vocab, data.tokenizer (the file, else the copy in the
// checkpoint). A resumed run keeps the checkpoint's model.init; with train.steps=0 model.init becomes the
// checkpoint folder. A different configured model.init must still be valid. Returns the checkpoint's
// train.micro_batch for fitting_micro_batch(). Without a checkpoint: no change, returns 0.
int adopt_open_settings(Config& cfg, const std::optional<Origin>& origin, bool prints);

// The settings of a resumed run: prints changes, and refuses changes of the math, and of the data (contents).
void check_settings(const Config& cfg, const Origin& origin, const Contents& contents, bool prints);

// The newest checkpoint of a run that passes verification, for reading only; empty: no checkpoint. Damaged
// checkpoints are skipped with a warning; exit code 79 if no other is left. A run beside this program
// may prune meanwhile: then the next is the newest. All ranks of `world` together:
// rank 0 reads, and holds the checkpoint.
HeldCheckpoint newest_checkpoint(const std::string& run_dir, const Axis& world = {},
                                 const Disk& disk = posix_disk());

// Opens a folder step_N. REQUIRES: every file is complete; hashes are not read. All ranks together: rank 0
// reads the manifest and looks at the files; other ranks receive the manifest without its files.
Origin open_checkpoint(const std::string& folder, const Axis& world = {}, const Disk& disk = posix_disk());
// The settings and the state of a checkpoint, for model.init; its manifest has no files and no pieces.
Origin open_head(const std::string& init);
// Refuses a model.init of unknown form, or without folder or file. Weights are not read.
void check_init(const std::string& init);
// Verifies a model.init that is a folder, and that its tensors are those of its settings, by rank 0. All
// ranks together.
void verify_init(const std::string& init, const Axis& world = {}, const Disk& disk = posix_disk(),
                 Check check = Check::Hashes);

}  // namespace saves
