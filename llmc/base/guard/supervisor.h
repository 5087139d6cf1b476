// A process that only watches: it says what its child died of, and ends one that hangs.
//
// supervise() forks before anything else exists. The child returns from it and is the program; the parent
// forwards signals, and ends with the child's code, or
//
//     75   the child died: of a signal, or by an exit that nobody meant
//     76   the child made no progress for run.hang_timeout seconds (base/guard/hangs.h), and was killed
//
// Either prints one line: rank, host, signal or cause, step, phase. Only the first death of a job on a host
// prints. Ranks that are threads share one supervisor.
//
// What the child prints goes through the supervisor (screen.h).
//
// Killing the supervisor kills the child; a supervisor whose launcher (mpirun, srun) is gone, or asks it to
// end, ends without a word.
#pragma once

// vmstat: the kernel's counters, of which oom_kill tells an out-of-memory kill from others
void supervise(const char* vmstat = "/proc/vmstat");

// For programs whose work is their output: none of it is dropped, and a wait for its reader is no hang.
void show_all_output();

// run.hang_timeout, in seconds; 0: the default
void watch_for_hangs(double seconds);
