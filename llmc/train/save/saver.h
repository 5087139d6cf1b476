// Checkpoints beside training: a snapshot into planned memory, then a thread that runs the queue of save.h.
//
// Ranks agree through the votes of each step: the thread sets this rank's words, poll() reads the sums. A
// save ends when every rank has written its share and rank 0 has published the folder. Where a rank fails,
// all ranks receive its error, and rank 0 removes the files.
#pragma once
#include <atomic>
#include <optional>
#include <thread>

#include "llmc/comm/votes.h"
#include "llmc/train/save/save.h"

inline namespace saves {

struct SaveJob {
    SavePlace place;
    std::vector<SavedPiece> pieces;                           // of this rank
    std::vector<std::span<const std::byte>> data;
    uint64_t total_bytes;                                     // of all ranks; the disk needs room for them
    Manifest manifest;                                        // all but files and pieces
    std::vector<ExtraFile> extras;
    FileId folder = {};                                       // of run_dir at the start; 0, 0: not looked at
    bool beside_training = false;                             // at low priority
};

// The votes of a rank whose phase of a save succeeded, failed; both 0: the phase is running.
enum SaveVote { kSaveDone = Votes::kFree, kSaveFailed };

struct Saver {
    // error: why the save failed; empty on success. complete: step_N is on disk, only its line in
    // checkpoints.jsonl is missing; the next start or a save of the same step adds the line.
    struct Outcome { int64_t step; std::string dir, error; bool complete = false; };

    Saver(const Axis& world, const CheckpointConfig& keep, Votes& votes, Disk disk = posix_disk());
    Saver(const Saver&) = delete;
    ~Saver();

    bool busy() const { return phase != Phase::Idle; }        // the same on all ranks
    void begin(SaveJob job);                                  // REQUIRES: !busy(). All ranks together
    std::optional<Outcome> poll();                            // after a step is read; the outcome, once
    std::optional<Outcome> finish();                          // waits for the save; empty if there is none
    void await_share();                                       // until this rank's data are written
    void prune(const std::string& run_dir) const;             // removes old checkpoints; rank 0, if idle

private:
    enum class Phase { Idle, Shares, Publishing, Clearing };
    void enter(Phase next, int code);                         // code: of `running`
    void set_running(int code);
    std::optional<Outcome> advance(double done, double failed);     // ranks
    void await_progress();                                    // waits for progress of the thread, or its end
    void start(std::function<std::string()> work);            // on the thread; work returns an error or ""
    void publish();                                           // rank 0
    std::string first_error() const;                          // over the ranks

    const Axis& world;
    CheckpointConfig keep;
    Votes& votes;
    std::atomic<uint64_t> operations = 0;                     // on the disk, that have ended
    std::atomic<double> may_sync_until = 0;                   // of seconds_now(), during a sync; else 0
    SaveJob job = {};
    Disk disk;
    Phase phase = Phase::Idle;
    int64_t asked_at = 0;                                     // votes.sent when the phase began
    int attempt = 0;
    std::thread thread;
    std::atomic<int> running = 0;                             // 1: yes, 0: done, -1: failed
    std::string error;                                        // of this rank's work; then of all ranks
};

}  // namespace saves
