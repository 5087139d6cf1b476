// A test that runs as processes of mpirun: this binary starts itself.
#pragma once
#include <initializer_list>

#include "llmc/comm/transport/mpi.h"
#include "test/test.h"

namespace test {

// Whether processes can be started; else the test is skipped.
inline bool can_start_processes() {
    if (mpi_library().empty()) skip("this build has no MPI");
    else if (kThreadSanitizer) skip("Open MPI is not instrumented");
    else if (run("command -v mpirun").code) skip("no mpirun here");
    else return true;
    return false;
}

// This binary on `ranks` processes. environment: "NAME=VALUE ..."
inline Ran run_own_processes(int ranks, const std::string& arguments, const std::string& environment = "") {
    return run(fmt::format("{} timeout 300 mpirun -q --allow-run-as-root --oversubscribe --bind-to none "
                           "-np {} {} {}", environment, ranks, own_path(), arguments));
}

// Runs the test `processes` of this binary on `ranks` processes: it must pass on each. A skip without MPI.
inline void expect_processes(std::initializer_list<int> all) {
    if (!can_start_processes()) return;
    for (const int ranks : all) {
        const Ran r = run_own_processes(ranks, "processes");
        EXPECT(r.code == 0, "%d ranks: exit %d: %s %s", ranks, r.code, r.out.c_str(), r.err.c_str());
        size_t passed = 0;
        for (size_t at = 0; (at = r.out.find("1 passed, 0 failed", at)) != std::string::npos; at++) passed++;
        EXPECT(passed == size_t(ranks), "%zu of %d ranks passed: %s", passed, ranks, r.out.c_str());
    }
}

}  // namespace test
