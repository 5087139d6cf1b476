// The runs below a folder, kept current by a few threads that read the runs' files.
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

    // Starts the reading threads.
    explicit Watcher(std::string folder);
    ~Watcher();
    Watcher(const Watcher&) = delete;

    // Queues runs with changed files for the reading threads. walk: also finds new and deleted runs, and
    // reads the files of ranks.
    void look(bool walk);
    // The same, with a walk if due: once a second, less often where a walk takes long.
    void look();
    // Ends every wait(), for good.
    void stop();

    Runs runs();                                        // now
    std::shared_ptr<WatchedRun> find(const std::string& name);      // null: no such run
    // Waits for a change after `seen`, at most so many seconds; sets `seen` to the newest. False: the watcher
    // stops.
    bool wait(uint64_t& seen, double seconds);
    // Whether every run is read to its end. For reports and tests.
    bool idle();

private:
    struct Work { std::shared_ptr<WatchedRun> run; bool view; };

    std::mutex mutex_;
    std::condition_variable changed_, work_;
    Runs runs_;
    std::deque<Work> views_, reads_;                    // first views go before reads
    std::map<std::string, FileState> files_;            // of runs, from the time of queueing
    std::map<std::string, std::string> states_;         // of runs, as on the pages
    uint64_t changes_ = 0;
    double next_walk_ = 0;                              // on the clock of seconds_now()
    uint64_t found_ = 0;                                // number of runs ever found
    size_t busy_ = 0;
    bool stopping_ = false;
    std::vector<std::thread> readers_;

    void walk();
    void work();
    void look_at(const std::shared_ptr<WatchedRun>& run);
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
