// Room train/save: checkpoints: written beside training, verified, found again, loaded on any mesh.
// Called by train_gpt.cu and train/run; train/log, train/watch and train/plan look into run folders by it.
// The room knows the state of a rank as arrays of tensors. It does not know how a step computes.
//
// The checkpoints of a run: folders run.dir/step_N with the weights, master weights and moments of all ranks
// (rank_state.h), the settings, the tokenizer, and a manifest (io/files/manifest.h) by which any mesh finds
// its share (state_source.h).
//
// With checkpoint.async saves run beside training (saver.h); else training waits. Offloaded state is written
// from where it is: the next update of the state waits until this rank's share is written.
#pragma once
#include "llmc/train/hook/hook.h"
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/images.h"
#include "llmc/train/save/rank_state.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/saver.h"
#include "llmc/train/save/state_source.h"

namespace PRECISION::inline saves {

struct Checkpoint {
    const Config& cfg;
    Shards& shards;
    const Mesh& mesh;
    Votes& votes;                    // of the run's steps
    std::byte* const& snapshot;      // memory for a copy of the share; null: saves read the tensors
    Images& images;                  // for train.rollback
    std::vector<ExtraFile> tokenizer_files;      // written into each checkpoint
    std::string run;                 // id of the run
    RankShare share;
    uint64_t total_bytes = 0;        // over all ranks
    Saver saver;
    CheckpointHook hook;             // of rank 0
    FileId folder;                   // of run.dir, while this run has its lock
    int64_t saved = -1;              // step of the newest checkpoint in run.dir
    std::function<void()> before_save = {};     // may end the run; may be empty
    std::string newest;              // folder that the run resumed from, or saved last; empty: none

    // All ranks together, like every function here.
    Checkpoint(const Config& cfg, Shards& shards, Votes& votes, std::byte* const& snapshot,
               std::vector<ExtraFile> tokenizer_files, Images& images, Disk disk = posix_disk());
    ~Checkpoint() { shards.await_readers = nullptr; }
    Checkpoint(const Checkpoint&) = delete;

    // Loads weights, state and RunState of the origin. Without an origin: weights, random or of model.init.
    // contents: of the files that this start reads.
    RunState load_or_init(const std::optional<Origin>& origin, const Contents& contents = {});
    void restore_from(const Origin& origin);        // weights and state alone

    bool async() const;
    // Whether save_if_due() may save or keep an image at this step, if the run does not end here.
    bool due(int64_t step) const {
        return asked_ || late_ || cfg.checkpoint.due(step, false) || images.due(step);
    }
    // Before each step and at the end: polls, and saves when the settings or a signal (`asked`) require, and
    // keeps an image of the state where one is due. A signal during another save takes effect after that
    // save; a save of a run in trouble waits for the trouble's end. ends: the run ends here.
    void save_if_due(const RunState& state, bool asked, bool ends);
    // Starts a save that poll() ends in a later step. A save that falls due during another save is skipped,
    // unless the run ends here: then the call waits for both saves, and a failure is fatal().
    void save(const RunState& state, bool ends);
    // Prints a line for a save that has ended, a warning for a failed save, once the votes of every rank are
    // read.
    void poll();
    void finish() { report(saver.finish(), false); }        // the same, but waits for a running save

    Manifest manifest() const;       // what all steps have alike: without files, pieces, step and state
    std::string state_text(const RunState& state) const;

private:
    bool asked_ = false;             // and not yet saved
    bool late_ = false;              // a save fell due in trouble
    int64_t begun_ = -1;             // step of the last save that began
    uint64_t skipped_ = 0;           // saves that fell due during another
    SaveJob job(const RunState& state) const;
    int64_t saved_here(const Origin& origin, int64_t step) const;
    bool misses_save(int64_t step);
    void report(const std::optional<Saver::Outcome>& outcome, bool last);
};

}  // namespace PRECISION::saves
