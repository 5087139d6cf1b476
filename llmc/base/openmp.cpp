#include "llmc/base/openmp.h"

#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

void limit_spinning(char** argv) {
    for (const char* set : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
        if (getenv(set)) return;
    setenv("GOMP_SPINCOUNT", "20000", 1);
    execv("/proc/self/exe", argv);      // returns only where that is not allowed: then threads spin
}
