// The checkpoints of a run: folders run.dir/step_N with the weights, master weights and moments of all ranks
// (rank_state.h), the settings, the tokenizer, and a manifest (io/files/manifest.h) by which any mesh finds
// its part.
//
// Saving runs beside training (saver.h) where checkpoint.async says so, else training waits for it.
#pragma once
#include "llmc/train/save/formats/interchange.h"
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
    std::byte* const& snapshot;      // of the share, where saving is asynchronous or the state on a device
    SharedText tokenizer_json;       // what folders get as tokenizer.json; null: none
    std::string run;                 // its id
    RankShare share;
    uint64_t total_bytes = 0;        // over all ranks
    Saver saver;
    FileId folder;                   // of run.dir, while this run has its lock
    int64_t saved = -1;              // step of the newest in run.dir

    // All ranks together, as everything here.
    Checkpoint(const Config& cfg, Zero& zero, std::byte* const& snapshot, SharedText tokenizer_json,
               Disk disk = posix_disk());

    // The state of the origin; without one, random weights, or those that model.init names.
    RunState load_or_init(const std::optional<Origin>& origin);
    // Weights alone: a checkpoint's folder, or another program's model.
    void load_weights(const std::string& init);

    bool async() const;
    // Whether this step is saved: it is due, or a signal has asked for it (`asked`). What a signal asks for
    // while another is being written comes after that.
    bool wanted(bool asked, int64_t step, bool last);
    bool may_be_wanted(int64_t step) const { return asked_ || cfg.checkpoint.due(step, false); }
    // Starts to save. One that falls due while another is being written is skipped, unless it is the run's
    // last: that waits, for both, and a failure is fatal(). The folder, where it is on the medium already;
    // else take() has it in a later step.
    std::optional<std::string> save(const RunState& state, bool last);
    std::optional<std::string> finish() { return report(saver.finish(), false); }
    // After the votes of a step: a folder that is now on the medium. Failures are warnings.
    std::optional<std::string> take(const Saver::Progress& sum);

private:
    bool asked_ = false;             // and not yet saved
    SaveJob job(const RunState& state) const;
    std::optional<std::string> report(const std::optional<Saver::Outcome>& outcome, bool last);
};

}  // namespace PRECISION
