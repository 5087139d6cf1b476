// A GPU or a driver that this program was not built for: says what was found and what to do, in place of an
// error of the first launch.
#pragma once

int usable_devices();               // how many there are; ends the program where there is none
void check_kernels_run_on(int device);
void run_nothing();                 // the kernel that the check asks for; for tests
