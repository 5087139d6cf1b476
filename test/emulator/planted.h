// Kernels with a bug each, to test the checks, and the line where the check must find the bug.
#pragma once
#include <cuda_runtime.h>

namespace planted {

struct Bug {
    const char* name;
    int line;                          // in the report; 0: refused before running
    const char* says;                  // words in the report
    void (*start)(float* data);        // launches the kernel on 1024 floats
};
extern const Bug bugs[];
extern const int count;
extern const Bug sound[];              // the same kernels without their bugs: nothing may be reported
// The same in planted_hopper.cu and planted_wgmma.cu.
extern const Bug hopper_bugs[], hopper_sound[], wgmma_bugs[], wgmma_sound[];
extern const int hopper_count, wgmma_count;

}  // namespace planted
