// How OpenMP's threads wait for each other.
#pragma once

inline namespace host {

// libgomp's threads spin at a barrier, however long the wait. On a busy machine, a spinning thread keeps the
// core from the thread that it waits for, and a step takes many times as long. libgomp reads its settings
// when loaded. So limit_spinning() sets a limit (unless the user has set a wait policy) and starts the
// program anew, if before() agrees.
//
// A program started as /proc/self/exe is called "exe": the new program restores its name, for ps and pgrep.
void limit_spinning(char** argv, bool (*before)());

}  // namespace host
