// Checkpoints beside training: a snapshot into memory that was planned, then a thread that works off the
// queue of save.h while the run goes on.
//
// Ranks agree through the small reduction of each step: mine() goes into it, take() comes out of it. A save
// is over when every rank has written its part and rank 0 has published it; one that falls due before is
// skipped. Where a rank fails, all learn what has failed on it, and rank 0 removes what was written.
#pragma once
#include <atomic>
#include <optional>
#include <thread>

#include "llmc/comm/axis.h"
#include "llmc/train/save/save.h"

struct SaveJob {
    SavePlace place;
    std::vector<SavedPiece> pieces;                           // of this rank
    std::vector<std::span<const std::byte>> data;
    uint64_t total_bytes;                                     // of all ranks, for which there has to be room
    Manifest manifest;                                        // all but files and pieces
    std::vector<ExtraFile> extras;
    FileId folder = {};                                       // of run_dir at the start; 0, 0: not looked at
    bool beside_training = false;                             // and gives way to it
};

struct Saver {
    struct Progress { double done = 0, failed = 0; };         // of a rank, or summed over the ranks
    // error: what failed, and dir is empty. complete: step_N is there all the same; only its acknowledgement
    // is missing, and the next start or a save of the same step adds it.
    struct Outcome { int64_t step; std::string dir, error; bool complete = false; };

    Saver(const Axis& world, const CheckpointConfig& keep, Disk disk = posix_disk());
    Saver(const Saver&) = delete;
    ~Saver();

    bool busy() const { return stage != Stage::Idle; }        // the same on all ranks
    void begin(SaveJob job);                                  // REQUIRES: !busy(). All ranks together, as
    Progress mine() const;
    int turn() const { return turns; }                        // how often all have got further together
    std::optional<Outcome> take(const Progress& sum);         // this: when it is over; once
    std::optional<Outcome> finish();                          // waits; nothing where none was under way
    void prune(const std::string& run_dir) const;             // what is not kept; rank 0, while not busy
    int attempts() const { return attempt; }

private:
    enum class Stage { Idle, Parts, Publishing, Clearing };
    void get_further();                                       // waits until its thread has, or is through
    void start(std::function<std::string()> work);            // on the thread; returns what failed
    std::string first_error() const;                          // over the ranks

    const Axis& world;
    CheckpointConfig keep;
    std::atomic<uint64_t> operations = 0;                     // on the disk, that have ended
    Disk disk;
    Stage stage = Stage::Idle;
    SaveJob job;
    int attempt = 0, turns = 0;
    std::thread thread;
    std::atomic<int> running = 0;                             // 1: yes, 0: done, -1: failed
    std::string error;                                        // of this rank's work; then that of all
};
