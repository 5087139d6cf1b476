// Faults at random upon a run with run.elastic (dev/storm.py), for `make test-full`.
#include <cstdlib>

#include "test/program.h"

using namespace test;

// Two seeds: of all faults on nodes in namespaces, where these are permitted; of dead and stopped processes.
TEST(a_storm_of_faults_changes_no_bit) {
    if (!getenv("TEST_FULL")) return skip("TEST_FULL=1 runs it");
    for (const char* how : {"--seed=3 --longest=6", "--seed=4 --longest=3 --loopback"}) {
        const Ran storm = run(fmt::format("dev/storm.py --seconds=20 --every=1.5 {}", how));
        EXPECT(storm.code == 0, "%s: code %d\n%s\n%s", how, storm.code, storm.out.c_str(), storm.err.c_str());
    }
}
