#include "llmc/base/host/openmp.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <initializer_list>

inline namespace host {

void limit_spinning(char** argv, bool (*before)()) {
    prctl(PR_SET_NAME, program_invocation_short_name);
    for (const char* set : {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
        if (getenv(set)) return;
    if (!before()) return;
    setenv("GOMP_SPINCOUNT", "20000", 1);
    execv("/proc/self/exe", argv);      // returns only if forbidden: then threads spin
}

}  // namespace host
