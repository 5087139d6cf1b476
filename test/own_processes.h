// A test that runs as processes of mpirun: this binary starts itself.
#pragma once
#include <filesystem>

#include "llmc/comm/transport/mpi.h"
#include "test/test.h"

namespace test {

// Runs the test `processes` of this binary on `ranks` processes: it must pass on each. A skip without MPI.
inline void expect_processes(std::initializer_list<int> all) {
    if (mpi_library().empty()) return skip("this build has no MPI");
    if (kThreadSanitizer) return skip("Open MPI is not instrumented");
    const std::string self = std::filesystem::read_symlink("/proc/self/exe");
    for (const int ranks : all) {
        const Ran r = run(fmt::format("timeout 300 mpirun -q --allow-run-as-root --oversubscribe "
                                      "--bind-to none -np {} {} processes", ranks, self));
        EXPECT(r.code == 0, "%d ranks: exit %d: %s %s", ranks, r.code, r.out.c_str(), r.err.c_str());
        size_t passed = 0;
        for (size_t at = 0; (at = r.out.find("1 passed, 0 failed", at)) != std::string::npos; at++) passed++;
        EXPECT(passed == size_t(ranks), "%zu of %d ranks passed: %s", passed, ranks, r.out.c_str());
    }
}

}  // namespace test
