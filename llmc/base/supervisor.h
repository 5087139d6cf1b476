// A process that only watches: it says what its child died of, and ends one that hangs.
//
// supervise() forks before anything else exists. The child returns from it and is the program; the parent
// forwards signals, and ends with the child's code, or
//
//     75   the child died: of a signal, or by an exit that nobody meant
//     76   the child made no progress for run.hang_timeout seconds (0: five times the slowest step so far,
//          at least a minute), and was killed
//
// Either prints one line: rank, host, signal or cause, step, phase. Only the first death of a job prints. Who
// waits in a collective is a victim, and the culprit's supervisor has two seconds to speak first. Ranks that
// are threads share one supervisor.
//
// Killing the supervisor kills the child; a supervisor whose launcher (mpirun, srun) is gone, or asks it to
// end, ends without a word.
#pragma once

void supervise();

// run.hang_timeout, in seconds; 0: the default
void watch_for_hangs(double seconds);
