#include "llmc/train/save/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/terminal.h"
#include "llmc/comm/votes.h"
#include "llmc/train/save/recover.h"
#include "llmc/train/save/save.h"

inline namespace saves {

namespace fs = std::filesystem;

// ---------------------------------------------------------------------------------------------------------
// the lock

// Locks a whole file, until this process closes the descriptor; works on NFS. 0 or errno.
// https://man7.org/linux/man-pages/man2/F_OFD_SETLK.2const.html
static int try_lock(int file) {
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    return fcntl(file, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

std::optional<bool> is_locked(const Fd& lock_file) {
    struct flock whole = {};
    whole.l_type = F_RDLCK;
    whole.l_whence = SEEK_SET;
    if (!lock_file || fcntl(lock_file.fd, F_OFD_GETLK, &whole) != 0) return std::nullopt;
    return whole.l_type != F_UNLCK;
}

// "process 17 on some-host", from the file
static std::string holder_of(const Fd& file) {
    char text[256];
    const ssize_t n = pread(file.fd, text, sizeof text, 0);
    const std::string line = printable({text, size_t(std::max<ssize_t>(n, 0))});
    return line.starts_with("process ") ? line.substr(0, line.find('\n')) : "another process";
}

// Returns true when the lock is held. A run that was just killed may need a moment to be gone.
static bool wait_for_lock(const Fd& file, const std::string& run_dir) {
    const char* const d = run_dir.c_str();
    int error = 0;
    const bool ended = wait_until({.what = "a wait for the lock of run.dir", .on = Awaits::Own, .nap = 0.01,
                                   .until = seconds_now() + 2, .beats = true},
                                  [&] { return (error = try_lock(file.fd)) != EAGAIN && error != EACCES; });
    CHECK_INPUT(ended, "run.dir {} is in use by {}. Wait for its end, or name another folder "
                "(--run.dir={}_2)", d, holder_of(file), d);
    if (error)
        warning("files in run.dir {} cannot be locked: {}. Start no second run there.", d, strerror(error));
    return error == 0;
}

static std::string lock_in(const std::string& run_dir) { return run_dir + "/" + kLockFile; }

// Makes the folder and the file if missing.
void RunLock::open_file() {
    const char* const d = dir_.c_str();
    std::error_code error;
    made_.clear();
    for (fs::path p = dir_; !p.empty() && !fs::exists(p, error); p = p.parent_path()) made_.push_back(p);
    fs::create_directories(dir_, error);
    if (!error && !is_directory(dir_)) error = std::make_error_code(std::errc::not_a_directory);
    CHECK_INPUT(!error, "cannot make run.dir {}: {}", d, error.message());
    const std::string path = lock_in(dir_);
    file_ = Fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
    const std::string why = strerror(errno);
    struct stat s = {};
    const bool own = lstat(path.c_str(), &s) != 0 || (S_ISREG(s.st_mode) && s.st_nlink <= 1);
    CHECK_INPUT(own, "{}: is a link, a pipe or a folder, expected the lock of a run: remove it",
                path);
    CHECK_INPUT(file_, "cannot write to run.dir {}: {}", d, why);
}

bool RunLock::is_current() const {
    struct stat by_name, open;
    return lstat(lock_in(dir_).c_str(), &by_name) == 0 && fstat(file_.fd, &open) == 0 &&
           by_name.st_dev == open.st_dev && by_name.st_ino == open.st_ino;
}

// A start that fails removes the file. A start that has waited for the removed file opens a new file.
void RunLock::take() {
    do {
        open_file();
        if (!wait_for_lock(file_, dir_)) return;
    } while (!is_current());
    const std::string holder = fmt::format("process {} on {}\n", int(getpid()), host_name());
    CHECK_INPUT(ftruncate(file_.fd, 0) == 0, "{}: cannot be written: {}", lock_in(dir_),
                strerror(errno));
    pwrite_all(file_.fd, holder.data(), holder.size(), 0, lock_in(dir_));
    undo_ = [this] { remove_unused(); };
    context.undo = &undo_;
}

void RunLock::remove_unused() const {
    if (file_exists(dir_ + "/metrics.jsonl") || !is_current()) return;
    unlink(lock_in(dir_).c_str());
    for (const std::string& folder : made_) (void)rmdir(folder.c_str());
}

RunLock::RunLock(const std::string& run_dir, const Axis& world) : dir_(run_dir) {
    run_on_rank_0(world, [&](const Heartbeat&) { take(); });
}

RunLock::~RunLock() {
    if (!undo_) return;
    undo_();
    context.undo = nullptr;
}

// ---------------------------------------------------------------------------------------------------------
// content of the folder

static bool holds_checkpoint(const std::string& dir) {
    std::error_code error;
    for (const auto& e : fs::directory_iterator(dir, error))
        if (step_name(e.path().filename().string())) return true;
    return file_exists(dir + "/checkpoints.jsonl");
}

void check_run_dir(const Config& cfg) {
    const std::string& dir = cfg.run.dir;
    const char* d = dir.c_str();
    for (const char* name : {"metrics.jsonl", "checkpoints.jsonl", "config.json", "kernels.txt"}) {
        const std::string path = dir + "/" + name;
        CHECK_INPUT(is_regular_file(path) || !file_exists(path), "run.dir: {} is no file, where a run keeps "
                    "one. Move it away, or name another folder (--run.dir={}_2)", path, d);
    }
    const bool run = file_exists(dir + "/metrics.jsonl"), saved = holds_checkpoint(dir);
    CHECK_INPUT(!cfg.checkpoint.begins_anew() || (!run && !saved),
                "run.dir {} already holds a run, and checkpoint.resume = never.\n"
                "       Go on with it (--checkpoint.resume=auto), name another folder (--run.dir={}_2), or "
                "delete this one (rm -r {})", d, d, d);
    const bool finished = run && !saved && has_done_row(posix_disk(), dir + "/metrics.jsonl");
    CHECK_INPUT(!finished || cfg.checkpoint.resumes_from_path(),
                "run.dir {} already holds a run, finished, without a checkpoint to go on from.\n"
                "       Name another folder (--run.dir={}_2), or delete this one (rm -r {})", d, d, d);
    CHECK_INPUT(run || saved || !file_exists(dir + "/config.json"),
                "run.dir {} holds a config.json, which the run's own would replace.\n"
                "       Name another folder (--run.dir={}/run), or move the file.", d, d);
}

// ---------------------------------------------------------------------------------------------------------
// one folder for all hosts

// NFS remembers for up to 30 s that a name was not there.
void check_shared(const std::string& run_dir, const Axis& world, bool (*sees)(const std::string&), int looks,
                  int pause_ms) {
    if (world.size == 1) return;
    std::string name;
    if (world.index == 0) {
        make_directories(run_dir);
        name = run_dir + "/" + kSharedProbe + std::to_string(getpid());
        write_file(name, "");
    }
    take_from_rank_0(world, name);
    const auto missing_now = [&] { return sum_over<1>(world, {double(!sees(name))})[0]; };
    double missing = missing_now();
    for (int look = 1; missing > 0 && look < looks; look++) {
        if (look == 1 && world.index == 0)
            print(stderr, "note: {:.0f} of {} ranks do not see a new file in run.dir {}; they look again for "
                  "{} s\n", missing, world.size, run_dir, int64_t(looks) * pause_ms / 1000);
        usleep(useconds_t(pause_ms) * 1000);
        beat();
        missing = missing_now();
    }
    if (world.index == 0) (void)unlink(name.c_str());
    CHECK_INPUT(missing == 0,
                "run.dir {} is not the same folder on all hosts: {:.0f} of {} ranks do not see a "
                "file that rank 0 has made there. Put it on a file system that they share", run_dir,
                missing, world.size);
}

}  // namespace saves
