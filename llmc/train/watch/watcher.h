// The runs below a folder, kept current by looks at their files.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "llmc/base/progress.h"
#include "llmc/train/watch/watched_run.h"

inline namespace watch {

using Runs = std::map<std::string, std::shared_ptr<WatchedRun>>;       // by name

// Folders below a folder that hold a metrics.jsonl: name -> path, as in WatchedRun. Symbolic links, hidden
// folders and checkpoints (step_N) are not entered, nor folders deeper than 8 levels.
std::map<std::string, std::string> find_runs(const std::string& folder);

struct Watcher {
    const std::string folder;

    explicit Watcher(std::string folder) : folder(std::move(folder)) {}

    // Finds new and deleted runs.
    void walk();
    // Reads runs whose files have changed, for a fraction of a second; walks: walks before, and reads the
    // files of ranks. False: more is to be read. For one thread.
    bool look(bool walks);
    // The same, with a walk if due: once a second, less often where a walk takes long.
    bool look() { return look(seconds_now() >= next_walk_); }
    // Ends every wait(), for good.
    void stop();

    Runs runs();                                        // now
    std::shared_ptr<WatchedRun> find(const std::string& name);      // null: no such run
    // Waits for a change after `seen`, at most so many seconds; sets `seen` to the newest. False: the watcher
    // stops.
    bool wait(uint64_t& seen, double seconds);

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    Runs runs_;
    uint64_t changes_ = 0;
    double next_walk_ = 0;                              // on the clock of seconds_now()
    uint64_t found_ = 0;                                // number of runs ever found
    bool stopping_ = false;

    void note_change();
    void remove(const std::string& name);
    bool look_at(WatchedRun& run);
    bool read(const std::vector<std::shared_ptr<WatchedRun>>& changed);
};

// The source of a page's events: knows what the page has seen of each run.
struct PageFeed {
    Watcher& watcher;
    std::map<std::string, SentRun> sent = {};
    uint64_t seen = 0;
    size_t watching = SIZE_MAX, loading = 0;            // as last sent
    double spoke = 0;                                   // time of the last event, by seconds_now()

    // Appends the next server-sent events to `out`, about 256 KB at most.
    void append(std::string& out);
    // The same; without news waits up to a second for a change. False: the watcher stops.
    bool next(std::string& out);
};

}  // namespace watch
