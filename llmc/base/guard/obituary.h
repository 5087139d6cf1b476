// How a rank ends: which rank of a job prints the reason, and notes for its supervisor
// (base/guard/supervisor.h).
#pragma once

// Marks the coming exit code as intended. Safe in a signal handler.
void ends_on_purpose();

// Returns true to a single rank of the job, which prints the error line. Across processes: on one host, while
// the speaker lives. If another user holds the job's name, every rank gets true.
bool first_to_speak();
// Waits after the error line, long enough for other processes to notice.
void hold_the_floor();

// Signals that end the process at once leave a note of the rank whose thread raised the signal.
void note_crashes();
