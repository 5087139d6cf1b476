// How a rank ends: which rank prints the one error line of a job on a host, and notes for its supervisor
// (base/guard/supervisor.h).
#pragma once
#include <sys/types.h>

inline namespace guard {

// Marks the coming exit code as intended. Safe in a signal handler.
void ends_on_purpose();

// True for a single rank of a host, which prints the error line; false for the host's other ranks as long as
// that rank's process lives. Every process gets true where `folder` can have no file of this user's.
bool first_to_speak(const char* folder = "/dev/shm");
// Waits after the error line, long enough for other processes to notice.
void hold_the_floor();

// Ends mpirun or its daemon, and their children, if the launcher still lives after `seconds`: it waits for a
// host that does not answer. Done by a new process, which outlives this one. Another parent, as a shell below
// mpirun that may go on, is left alone.
void end_launcher_later(pid_t launcher, double seconds);

// Signals that end the process at once leave a note of the rank whose thread raised the signal.
void note_crashes();

}  // namespace guard
