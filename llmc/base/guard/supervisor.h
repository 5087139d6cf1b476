// Room base/guard: ends a job that hangs or dies, with one error line; receives signals.
// main() calls supervise(). Every room with long work reports progress by beat() and phase().
// The room knows ranks, phases and steps by their numbers. It does not know what a phase computes.
//
// A process that watches the program: reports the cause of death of its child, and kills a hung child.
//
// supervise() forks before anything else exists. The child returns from supervise() and is the program. The
// parent forwards signals, and ends with the child's code, or with
//
//     75   the child died: of a signal, or by an unintended exit
//     76   the child made no progress for run.hang_timeout seconds (base/guard/hangs.h), and was killed
//
// 75 and 76 print a line: rank, host, signal or cause, step, phase. Only the first death of a job on a host
// prints. Ranks as threads of a process share a supervisor.
//
// The child's output goes through the supervisor (screen.h).
//
// Killing the supervisor kills the child. A supervisor ends silently when its launcher (mpirun, srun) is gone
// or asks for the end.
#pragma once

inline namespace guard {

// vmstat: the kernel's counters; oom_kill tells out-of-memory kills from others
void supervise(const char* vmstat = "/proc/vmstat");

// For programs whose work is their output: output is never dropped, and a wait for its reader is no hang.
void show_all_output();

// run.hang_timeout, in seconds; 0: the default
void set_hang_timeout(double seconds);

}  // namespace guard
