// Signals ask; the loop answers between two steps.
//
//     SIGUSR1            save and go on
//     SIGUSR2            save and exit 75
//     SIGTERM, SIGINT    save and exit 75; once more: exit 75 at once, without saving
//
// Before training there is nothing to save: SIGTERM and SIGINT exit 75 at once, SIGUSR1 and SIGUSR2 are kept
// for the first step. --plan, --generate and --export die of all four signals, as other tools do.
//
// What would otherwise end the run, a reader of stdout that is gone (SIGPIPE) or a limit on the size of files
// (SIGXFSZ), is left to whoever writes.
#pragma once

struct Signals {
    bool save = false, stop = false;
    void operator|=(const Signals& s) { save |= s.save, stop |= s.stop; }
};

// Blocks the signals, SIGHUP as well. The first call of main(): a launcher may signal a rank at any time. The
// mask and pending signals survive exec.
void hold_signals();

// A thread of its own waits for signals. Called before any other thread begins: all leave signals to it.
// A handler would run on the stack of whatever it interrupts, and kernels of oneDNN use the stack pointer for
// other things (2.6, its AVX2 gemm): the frame of a signal would fall into the heap.
void receive_signals();

// For programs whose work is their output: they are done where nobody reads it any more.
void end_with_reader();

void signals_as_usual();        // from here on each does what it does by default
void catch_signals();           // from here on the training loop answers
Signals take_signals();         // what was asked since the last call; `stop` stays
bool stop_asked();              // for long work that can end early
