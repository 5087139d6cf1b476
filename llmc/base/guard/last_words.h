// How a rank ends: who of a job says why, and what its supervisor gets to know (base/guard/supervisor.h).
#pragma once

// The code is what the program means to end with. Safe in a signal handler.
void ends_on_purpose();

// Whether nobody of this job has spoken about its end; afterwards somebody has. Across processes this holds
// on one host, while the speaker lives. Where another user holds the job's name, every rank speaks.
bool first_to_speak();
// For who exits after speaking: long enough for others to notice.
void hold_the_floor();

// Signals that end the process at once leave a note of the rank whose thread raised them.
void note_crashes();
