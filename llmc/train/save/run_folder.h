// The folder of a run: who may write there, and what has to be there before anything is written.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/files.h"
#include "llmc/comm/axis.h"

// The lock of run.dir, taken by rank 0 before any rank reads or writes there; makes the folder. A start
// beside another run waits two seconds; then an error names the other's process and host, which the file
// holds. The system frees the lock when the process ends, also by SIGKILL. The file stays, unless the start
// fails before its first row: then the file goes, and the folders that this start has made.
inline constexpr const char* kLockFile = "train_gpt.lock";
struct RunLock {
    explicit RunLock(const std::string& run_dir, const Axis& world = {});     // all ranks together
    ~RunLock();
    RunLock(const RunLock&) = delete;

private:
    std::string dir_;
    std::vector<std::string> made_;         // folders, the innermost first
    Fd file_;                               // holds the lock as long as it is open
    std::function<void()> undo_;

    void open_file();
    bool is_current() const;                // the file has its name still
    void take(const std::function<void()>& heartbeat);
    void remove_unused() const;
};

// run.dir may hold a run to go on with, or one that was stopped before its first checkpoint and starts anew;
// not a finished one that left no checkpoint, not others' files, and with checkpoint.resume=never no run at
// all. Leaves nothing behind.
void check_run_dir(const Config& cfg);
