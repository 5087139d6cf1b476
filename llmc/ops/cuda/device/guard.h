// Checks that this build runs on the GPU and driver: a message with a remedy, in place of an error of the
// first launch.
#pragma once

inline namespace gpu {

int usable_devices();               // their number; without any, ends the program
void check_kernels_run_on(int device);
void run_nothing();                 // the kernel of the check; for tests

}  // namespace gpu
