// Room train/hook: a command of the user that gets each checkpoint. Called by train/save. The room does not
// know how checkpoints are written.
//
// checkpoint.hook runs beside training, one checkpoint after the other:
//
//     sh -c 'COMMAND "$1"' sh run.dir/step_N      stdin: empty; stdout and stderr: added to run.dir/hook.log
//
// A shared lock on manifest.json keeps the folder until its command has ended (hold_checkpoint() in save/).
// Nothing here ends training: a command that fails, hangs or cannot start is a warning.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "llmc/base/disk/files.h"

inline namespace hook {

struct CheckpointHook {
    CheckpointHook(std::string shell_command, double seconds, std::string log_file)
        : command(std::move(shell_command)), limit(seconds), log(std::move(log_file)) {}
    CheckpointHook(const CheckpointHook&) = delete;
    // Kills no command: where ranks leave a generation, or a run ends early, an upload goes on.
    ~CheckpointHook() = default;

    // The folder's turn comes once the commands of earlier ones have ended. lock: held until then.
    void add(std::string folder, Fd lock);
    // Begins and ends commands that are due. false: none runs, none waits.
    bool poll();
    // Waits for all commands, each for its limit at most, with a line that says so.
    void finish();

private:
    const std::string command;      // empty: nothing is called
    const double limit;             // seconds that a command may take, then it is killed; 0: any time
    const std::string log;          // file that has what commands print
    struct Call {
        std::string folder;
        Fd lock;
        pid_t process = 0;          // also the number of the command's group
        double began = 0;           // seconds_now()
    };
    std::deque<Call> calls_;        // the first one runs
    bool warned_ = false;           // that commands are slower than checkpoints come
    bool begin(Call& call) const;
    bool has_ended(const Call& call) const;
};

}  // namespace hook
