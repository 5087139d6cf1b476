// Kernels with a bug each, for the test of the checks. Every one tells the line where it has to be found.
#pragma once
#include <cuda_runtime.h>

namespace planted {

struct Bug {
    const char* name;
    int line;                          // that the report has to name; 0: refused before it runs
    const char* says;                  // what the report has to contain
    void (*start)(float* data);        // launches it on 1024 floats
};
extern const Bug bugs[];
extern const int count;
extern const Bug sound[];              // the same kernels without their bugs: nothing may be reported

}  // namespace planted
