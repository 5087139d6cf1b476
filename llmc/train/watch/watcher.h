// All runs below a folder, kept current by a few threads that read their files.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "llmc/train/watch/watched_run.h"

using Runs = std::map<std::string, std::shared_ptr<WatchedRun>>;       // by name

// Folders below a folder that hold a metrics.jsonl: name -> path, as in WatchedRun. Symbolic links, hidden
// folders and checkpoints (step_N) are not entered, nor folders deeper than 8 levels.
std::map<std::string, std::string> find_runs(const std::string& folder);

struct Watcher {
    const std::string folder;

    // Starts the threads that read.
    explicit Watcher(std::string folder);
    ~Watcher();
    Watcher(const Watcher&) = delete;

    // Looks at every file; with walk also for new and deleted runs, and at what ranks do. The readers read.
    void look(bool walk);
    // The same where a walk is due: once a second, less often in a folder that takes long.
    void look();
    // Wakes all that wait, for good.
    void stop();

    Runs runs();                                        // now
    std::shared_ptr<WatchedRun> find(const std::string& name);      // null: no such run
    // Waits until something changed after `seen` (which becomes current), at most some seconds. False: the
    // watcher stops.
    bool wait(uint64_t& seen, double seconds);
    // All runs are read to their ends. For reports and tests.
    bool idle();

private:
    struct Work { std::shared_ptr<WatchedRun> run; bool view; };

    std::mutex mutex_;
    std::condition_variable changed_, work_;
    Runs runs_;
    std::deque<Work> views_, reads_;                    // first views go before all else
    std::map<std::string, FileState> files_;            // of runs, as they were when they were queued
    std::map<std::string, std::string> states_;         // of runs, as pages know them
    uint64_t changes_ = 0;
    double next_walk_ = 0;                              // on the clock of seconds_now()
    uint64_t found_ = 0;                                // runs so far
    size_t busy_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> readers_;

    void walk();
    void work();
    void look_at(const std::shared_ptr<WatchedRun>& run);
};

// What one page has seen of all runs: the source of its events.
struct PageFeed {
    Watcher& watcher;
    std::map<std::string, SentRun> sent = {};
    uint64_t seen = 0;
    size_t watching = SIZE_MAX, loading = 0;            // as said last
    double spoke = 0;                                   // when something was sent last

    // Appends the next server-sent events to `out`, about 256 KB at most.
    void append(std::string& out);
    // The same; waits for a second where nothing is new. False: the watcher stops.
    bool next(std::string& out);
};
