// The process of a rank, as its agent sees it: started, heard, watched and reaped.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>

#include "llmc/base/guard/hangs.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/agents/channel.h"

inline namespace agents {

// Tests: a rank that is a thread of this process.
struct RankThread {
    std::atomic<int> code = kRuns;          // as RankProcess::ended() has it
    std::atomic<bool> killed = false;       // by the agent
    static constexpr int kRuns = 1000;
};

struct RankProcess {
    pid_t process = 0;                      // 0: there is none
    MessageChannel channel;
    ProgressPage* page = nullptr;
    std::unique_ptr<HangFinder> finder;
    double started = 0;                     // seconds_now()
    int stopped_by = 0;                     // signal that stopped it
    bool idle = false;                      // it waits for a plan
    int rank = -1;                          // in the generation of its last plan; -1: it had none
    int64_t generation = 0;
    bool finished = false;
    std::string cause;                      // why the agent has killed it
    std::shared_ptr<RankThread> thread;     // in place of a process; null: none

    // Starts the program anew as a rank. mask: of its signals. again: in place of a lost one, so that a FAULT
    // of tests strikes once. false: no process can be made.
    bool start(char** argv, const sigset_t& mask, double hang_timeout, bool again);
    void kill_for(const std::string& why);
    void signal(int number) const;
    // The process has ended: the exit code, or minus the signal. Prints nothing.
    std::optional<int> ended();
    void forget();                          // the process is gone
    // Whether it hangs by itself, not for others. seconds: since the last call.
    bool hangs(double seconds);
    std::string doing() const;              // "in phase train of step 12, in all_gather tp"
};

// "was killed by signal 9 (SIGKILL)", "ended with exit code 1"
std::string end_of(int code);

}  // namespace agents
