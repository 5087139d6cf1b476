// The folder of a run: its lock, and checks before the first write.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/files.h"
#include "llmc/comm/axis.h"

// The lock of run.dir: rank 0 creates the folder and takes the lock before any rank reads or writes there. A
// start beside another run waits two seconds, then ends with the other's process and host, read from the
// file. The system frees the lock when the process ends, also by SIGKILL. The file stays. A start that fails
// before its first row removes the file and the folders that it created.
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

// Whether a process holds the lock of this file: looked at, never taken. Null: no file, or a disk without
// locks.
std::optional<bool> is_locked(const Fd& lock_file);

// Refuses a run.dir with a finished run without checkpoints, with files of others, or, with
// checkpoint.resume=never, with any run. Accepts a run to resume, or a run that stopped before its first
// checkpoint and starts anew. Creates no file.
void check_run_dir(const Config& cfg);
