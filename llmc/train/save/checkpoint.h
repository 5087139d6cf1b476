// The checkpoints of a run: folders run.dir/step_N with the weights, master weights and moments of all ranks
// (rank_state.h), the settings, the tokenizer, and a manifest (io/files/manifest.h) by which any mesh finds
// its part.
//
// Saving runs beside training (saver.h) where checkpoint.async says so, else training waits for it.
#pragma once
#include "llmc/train/save/formats/formats.h"
#include "llmc/train/save/rank_state.h"
#include "llmc/train/save/resume.h"
#include "llmc/train/save/run_state.h"
#include "llmc/train/save/saver.h"

namespace PRECISION {

// A slice of a tensor at a time. Each rank takes what it holds.
void import_weights(Zero& zero, const ForeignModel& foreign);

struct Checkpoint {
    const Config& cfg;
    Zero& zero;
    const Mesh& mesh;
    Votes& votes;                    // of the run's steps
    std::byte* const& snapshot;      // of the share, where saving is asynchronous or the state on a device
    SharedText tokenizer_json;       // what folders get as tokenizer.json; null: none
    std::string run;                 // its id
    RankShare share;
    uint64_t total_bytes = 0;        // over all ranks
    Saver saver;
    FileId folder;                   // of run.dir, while this run has its lock
    int64_t saved = -1;              // step of the newest in run.dir
    std::string newest;              // folder that the run began with, or saved last; empty: neither

    // All ranks together, as everything here.
    Checkpoint(const Config& cfg, Zero& zero, Votes& votes, std::byte* const& snapshot,
               SharedText tokenizer_json, Disk disk = posix_disk());

    // The state of the origin; without one, random weights, or those that model.init names.
    RunState load_or_init(const std::optional<Origin>& origin);
    // Weights alone: a checkpoint's folder, or another program's model.
    void load_weights(const std::string& init);

    bool async() const;
    // Whether save_if_due may save at this step, where it is not the run's last.
    bool due(int64_t step) const { return asked_ || cfg.checkpoint.due(step, false); }
    // Before each step and at the end: saves where the settings or a signal (`asked`) say so. A signal that
    // asks while another checkpoint is being written is answered after that. ends: the run ends here.
    void save_if_due(const RunState& state, bool asked, bool ends);
    // Starts to save; poll() ends it in a later step. A save that falls due while another is under way is
    // skipped, unless the run ends here: then it waits for both, and a failure is fatal().
    void save(const RunState& state, bool ends);
    // After the host has read a step: a save that has ended is a line on the screen, a failure a warning.
    void poll() { report(saver.poll(), false); }
    void finish() { report(saver.finish(), false); }        // waits for the save that is under way

private:
    bool asked_ = false;             // and not yet saved
    SaveJob job(const RunState& state) const;
    void report(const std::optional<Saver::Outcome>& outcome, bool last);
};

}  // namespace PRECISION
