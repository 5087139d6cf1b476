// The folder of a run: its lock, and checks before the first write.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llmc/base/config/config.h"
#include "llmc/base/disk/files.h"
#include "llmc/comm/axis.h"

inline namespace saves {

// The lock of run.dir: rank 0 creates the folder and takes the lock before any rank reads or writes there. If
// another run has the lock, the start waits two seconds, then ends; the message names the other run's process
// and host, which the file holds. The system frees the lock when the process ends, even by SIGKILL; the file
// stays. A start that fails before its first row of metrics.jsonl removes the file, and folders that it made.
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
    void take();
    void remove_unused() const;
};

// Whether a process holds the lock of this file, without taking the lock. Empty: no file, or a disk without
// locks.
std::optional<bool> is_locked(const Fd& lock_file);

// Refuses a run.dir that holds a finished run without checkpoints, files of other programs, or, with
// checkpoint.resume=never, any run. Accepts a run to resume, and a run that stopped before its first
// checkpoint and so starts anew. Creates no file.
void check_run_dir(const Config& cfg);

// Checks that every rank sees a file that rank 0 creates in run.dir. A rank looks `looks` times at most, with
// pauses of pause_ms. sees(path): whether the file exists.
void check_shared(const std::string& run_dir, const Axis& world, bool (*sees)(const std::string&),
                  int looks = 240, int pause_ms = 250);

}  // namespace saves
