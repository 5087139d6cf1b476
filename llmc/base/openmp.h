// How OpenMP's threads wait for each other.
#pragma once

// libgomp's threads spin at a barrier for as long as it takes. On a machine with other work to do, the one
// that spins keeps the core from the one it waits for, and a step takes many times as long. libgomp reads its
// settings when it is loaded, so this sets a limit (unless the user has said how to wait) and starts the
// program anew.
//
// What is started as /proc/self/exe is called "exe": the new program takes its name again, for ps and pgrep.
void limit_spinning(char** argv);
