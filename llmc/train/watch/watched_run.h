// A run below the watched folder: read from its files, written as a JSON object for the page.
#pragma once
#include <atomic>
#include <mutex>
#include <optional>

#include "llmc/train/watch/history.h"
#include "llmc/train/watch/tail.h"

inline namespace watch {

// metrics.jsonl from its start to a place before its end: the next history of a run.
struct PartlyRead {
    History history;
    Tail tail;
    uint64_t every;                     // of the train rows one in so many is kept
};

struct WatchedRun {
    const uint64_t id;                  // unique in a Watcher, never 0
    const std::string name;             // shown: the path below the folder, "." the folder itself
    const std::string path;             // the path's bytes and a slash; empty: the folder itself
    std::atomic<uint64_t> version{0};   // grows with each change for pages
    std::atomic<bool> viewed{false};    // history has rows: of a first view, or all
    std::atomic<bool> loading{true};    // metrics.jsonl is not yet read to its end

    std::optional<PartlyRead> partly;   // for the one thread that reads the run
    std::mutex mutex;                   // guards the members below
    History history;
    Tail tail, checkpoint_tail, eval_tail;
    std::string config = "null", ranks = "null";
    std::string state;                  // at the latest look; empty: not yet read
    std::optional<bool> locked;                 // a process holds the run's lock; null: unknown
    FileState config_file;
    uint64_t replaced = 0;              // grows where known rows may have changed
    bool whole = false;                 // every row is kept, for a report

    WatchedRun(uint64_t id, std::string name, std::string path)
        : id(id), name(std::move(name)), path(std::move(path)) {}
};

// Fills the history by rows at evenly spaced places of a long metrics.jsonl, before it is read to its end.
// False: the file is short, or gone.
bool view_run(WatchedRun& run, const std::string& folder);
// Reads new bytes of the run's files, except the ranks'. Returns false after a part of a long metrics.jsonl:
// the next call reads on. For one thread.
bool read_run(WatchedRun& run, const std::string& folder);

// Reads whether the run's processes live: the run's lock, and the files of its ranks.
void read_life(WatchedRun& run, const std::string& folder);
// Reads new rows of checkpoints.jsonl, and of evals.jsonl: scores of --evaluate, and of training, which are
// in metrics.jsonl as well.
void read_beside(WatchedRun& run, const std::string& folder);

// Seconds since metrics.jsonl was written, and the run's state:
//     done        by its last row
//     stopped     its processes ended: nobody holds the lock, and no file of a rank is current
//     training    the last row is fresh
//     quiet       no fresh row; the processes live, or nothing says that they ended
// REQUIRES of both: run.mutex is held.
double age_of(const WatchedRun& run);
const char* state_of(const WatchedRun& run);

// The parts of a run that a page has received: numbers of rows and values.
struct SentRun {
    uint64_t id = 0;                    // 0: nothing yet
    uint64_t version = 0, generation = 0;
    std::map<std::string, size_t> rows = {};        // of kTables, and "tasks/piqa"
    uint64_t samples = 0, marks = 0, health = 0;
};
// The run as a line of JSON: whole, with "reset":true, or its additions since `sent`; updates `sent`. most:
// limit of train rows, for a page's first picture of many runs. If rows are left out, the next call sends the
// whole run.
std::string run_json(WatchedRun& run, SentRun& sent, size_t most = SIZE_MAX);

// Train rows of the steps from..to, about `points` at most, as a run's JSON object.
// REQUIRES: steps grow along the file.
std::string rows_json(WatchedRun& run, const std::string& folder, double from, double to, size_t points);

}  // namespace watch
