#include "llmc/train/hook/hook.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstring>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace hook {

// A group of its own: ^C at the terminal is for training. All signals as at the start of a program.
// 0 or errno.
static int start_in_group(const char* const words[], const std::string& log, pid_t* process) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW;
    posix_spawn_file_actions_addopen(&files, 1, log.c_str(), kAppend, 0644);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    const int error =
        posix_spawn(process, "/bin/sh", &files, &attributes, const_cast<char**>(words), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

void CheckpointHook::add(std::string folder, Fd lock) {
    if (command.empty()) return;
    calls_.push_back({.folder = std::move(folder), .lock = std::move(lock)});
    (void)poll();
    const size_t waiting = calls_.empty() ? 0 : calls_.size() - 1;
    if (waiting > 1 && !std::exchange(warned_, true))
        warning("{} checkpoints wait for checkpoint.hook, and stay on the disk until it has had them",
                waiting);
}

bool CheckpointHook::begin(Call& call) const {
    const std::string with_folder = command + " \"$1\"";
    const char* const words[] = {"sh", "-c", with_folder.c_str(), "sh", call.folder.c_str(), nullptr};
    call.began = seconds_now();
    const int error = start_in_group(words, log, &call.process);
    if (error)
        warning("checkpoint.hook cannot start for {}: {}. Training goes on.", call.folder, strerror(error));
    return error == 0;
}

bool CheckpointHook::has_ended(const Call& call) const {
    const double seconds = seconds_now() - call.began;
    const bool late = limit > 0 && seconds > limit;
    int status = 0;
    if (late) (void)kill(-call.process, SIGKILL);
    const pid_t ended = waitpid(call.process, &status, late ? 0 : WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    const auto warn = [&](const std::string& how) {
        warning("checkpoint.hook of {} {} after {}. What it printed is in {}. Training goes on.", call.folder,
                how, human_seconds(seconds), log);
    };
    if (late) warn("was killed at checkpoint.hook_timeout,");
    else if (WIFSIGNALED(status)) warn(fmt::format("was ended by signal {}", WTERMSIG(status)));
    else if (WEXITSTATUS(status)) warn(fmt::format("ended with exit code {}", WEXITSTATUS(status)));
    return true;
}

bool CheckpointHook::poll() {
    while (!calls_.empty()) {
        Call& call = calls_.front();
        if (call.process == 0 ? begin(call) : !has_ended(call)) return true;
        calls_.pop_front();
    }
    return false;
}

void CheckpointHook::finish() {
    if (!poll()) return;
    const double begin = seconds_now();
    bool said = false;
    wait_until({.what = "checkpoint.hook", .on = Awaits::Own, .nap = 0.05, .beats = true}, [&] {
        if (!poll()) return true;
        if (!said && seconds_now() - begin > 5) {
            said = true;
            print_event("waits", "for checkpoint.hook of " + for_terminal(calls_.front().folder));
        }
        return false;
    });
}

}  // namespace hook
