// Signals ask; the loop answers between two steps.
//
//     SIGUSR1            save and go on
//     SIGUSR2            save and exit 75
//     SIGTERM, SIGINT    save and exit 75; once more: exit 75 at once, without saving
//
// Before training: SIGTERM and SIGINT exit 75 at once without saving, SIGUSR1 and SIGUSR2 are kept
// for the first step. --plan, --generate and --export die of each of the four signals, as other tools do.
//
// A closed reader of stdout (SIGPIPE) does not end the run: the write fails, and the writer handles it.
#pragma once
#include <csignal>
#include <initializer_list>

inline namespace guard {

struct Signals {
    bool save = false, stop = false;
    bool regroup = false;           // by the agent of this rank: ranks join after this step (run.elastic)
    void operator|=(const Signals& s) {
        save |= s.save;
        stop |= s.stop;
        regroup |= s.regroup;
    }
};

sigset_t set_of(std::initializer_list<int> signals);

// Blocks the signals, SIGHUP as well. The first call of main(): a launcher may signal a rank at any time. The
// mask and pending signals survive exec.
void hold_signals();

// Starts a thread that waits for signals. Call before other threads begin: each leaves signals to this
// thread. A handler would run on the stack of the interrupted code. There, kernels of oneDNN use the stack
// pointer for other things (2.6, its AVX2 gemm): a signal frame would land in the heap.
void receive_signals();

// For programs whose work is their output: the program ends when its reader is gone.
void end_with_reader();

void signals_as_usual();        // restores the default action of each signal
void catch_signals();           // from here on, the training loop answers
Signals take_signals();         // requests since the last call; `stop` stays
bool stop_asked();              // for long work that can end early

}  // namespace guard
