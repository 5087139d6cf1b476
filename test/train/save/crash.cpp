// A kill at any operation and any byte of saving, pruning and resuming loses nothing that was acknowledged.
#include <sys/mman.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <filesystem>

#include "test/faulty_disk.h"
#include "test/saving.h"

namespace fs = std::filesystem;
using namespace test;

static int64_t* shared_number() {
    return static_cast<int64_t*>(
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

// The recovery of a start.
enum class Scenario { Fresh, Interrupted, Damaged };

static int64_t prepare(Scenario scenario, const std::string& dir, int ranks) {
    fs::remove_all(dir);
    fs::create_directories(dir);
    int64_t acknowledged = 0;
    if (scenario == Scenario::Fresh) return 0;
    run_to(posix_disk(), dir, ranks, 2, &acknowledged);
    if (scenario == Scenario::Interrupted)
        fs::copy(dir + "/step_2", dir + "/step_3.tmp-1", fs::copy_options::recursive);
    else fs::resize_file(dir + "/step_2/rank_00000.safetensors", 100), acknowledged = 1;
    return acknowledged;
}

// Forks a run that dies at the fault; the parent recovers and judges, and lets the run come to its end.
static std::string killed(Scenario scenario, const std::string& dir, int ranks, const Fault& fault,
                          int64_t* acknowledged, const Mutant& mutant = {}) {
    *acknowledged = prepare(scenario, dir, ranks);
    const pid_t child = fork();
    if (child == 0) {
        const Disk disk = faulty_disk(posix_disk(), fault, std::make_shared<FaultCount>());
        run_to(disk, dir, ranks, 3, acknowledged, mutant);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status)) return "the fault was not reached";
    const bool damage = scenario == Scenario::Damaged;
    const std::string wrong = first_fault(posix_disk(), dir, *acknowledged, damage);
    if (!wrong.empty()) return wrong;
    run_to(posix_disk(), dir, ranks, 3, acknowledged);
    const size_t kept = saved_steps(posix_disk(), dir).size();
    if (kept > 2) return fmt::format("{} checkpoints are kept", kept);
    return first_fault(posix_disk(), dir, 3, damage);
}

// What a run without a fault does: a number of bytes for each operation.
static std::vector<size_t> operations_of(Scenario scenario, const std::string& dir, int ranks,
                                         const Mutant& mutant = {}) {
    int64_t acknowledged = prepare(scenario, dir, ranks);
    auto count = std::make_shared<FaultCount>();
    run_to(faulty_disk(posix_disk(), {}, count), dir, ranks, 3, &acknowledged, mutant);
    CHECK(acknowledged == 3, "a run without a fault saves up to step 3");
    return count->write_bytes;
}

static std::string folder_of_test() {
    return (fs::exists("/dev/shm") ? "/dev/shm/" : temporary_directory() + "/") + "crash_" +
           std::to_string(getpid());
}

// Every 31st point in `make test`, every point (CRASH_POINTS=all) in `make test-full`, every 127th point
// under AddressSanitizer.
TEST(kill_at_every_operation_and_byte) {
    const char* wanted = getenv("CRASH_POINTS");
    const size_t stride = wanted && !strcmp(wanted, "all") ? 1 : test::kAddressSanitizer ? 127 : 31;
    const std::string dir = folder_of_test();
    int64_t* acknowledged = shared_number();
    const auto begin = std::chrono::steady_clock::now();
    size_t points = 0, tried = 0, bad = 0;
    for (const Scenario scenario : {Scenario::Fresh, Scenario::Interrupted, Scenario::Damaged})
        for (const int ranks : {1, 2, 4}) {
            const std::vector<size_t> bytes = operations_of(scenario, dir, ranks);
            for (size_t at = 0; at < bytes.size(); at++)
                for (size_t n = 0; n <= bytes[at] && bad < 5; n += std::max<size_t>(1, bytes[at] / 64)) {
                    if (points++ % stride) continue;
                    tried++;
                    const std::string wrong =
                        killed(scenario, dir, ranks,
                               {.action = Fault::Kill, .at = int64_t(at), .bytes = n}, acknowledged);
                    bad += !wrong.empty();
                    EXPECT(wrong.empty(), "scenario %d, %d ranks, operation %zu of %zu, after %zu bytes: %s",
                           int(scenario), ranks, at, bytes.size(), n, wrong.c_str());
                }
        }
    fs::remove_all(dir);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    printf("killed at %zu of %zu points, %zu of them bad, in %.0f s\n", tried, points, bad, seconds);
    EXPECT(points >= 10000, "%zu distinct points, at least 10,000 expected", points);
}

TEST(a_protocol_that_acknowledges_first_loses) {
    const std::string dir = folder_of_test();
    const Mutant mutant{.acknowledge_first = true};
    int64_t* acknowledged = shared_number();
    const size_t operations = operations_of(Scenario::Fresh, dir, 1, mutant).size();
    size_t bad = 0;
    for (size_t at = 0; at < operations; at++)
        bad += !killed(Scenario::Fresh, dir, 1, {.action = Fault::Kill, .at = int64_t(at)}, acknowledged,
                       mutant).empty();
    fs::remove_all(dir);
    EXPECT(bad > 0, "no kill was noticed");
}

// ---------------------------------------------------------------------------------------------------------
// errors

static std::string save_with(const Fault& fault, const std::string& dir, int ranks,
                             std::shared_ptr<FaultCount> count = std::make_shared<FaultCount>()) {
    prepare(Scenario::Interrupted, dir, ranks);
    (void)recover(posix_disk(), dir);
    log_row(posix_disk(), dir, 3);
    return save(faulty_disk(posix_disk(), fault, count), dir, 3, ranks, 1);
}

// The save reports the error and leaves no file, the old checkpoint stays, and the next save works. A second
// save of the same step finds a complete checkpoint if the error came after the rename.
TEST(errors_at_every_operation) {
    const std::string dir = folder_of_test();
    size_t tried = 0, visible = 0;
    for (const int code : {ENOSPC, EIO, EDQUOT})
        for (const int ranks : {1, 3}) {
            auto count = std::make_shared<FaultCount>();
            EXPECT(save_with({}, dir, ranks, count).empty(), "a save without a fault");
            for (int64_t at = 0; at < count->operations; at++, tried++) {
                const std::string error = save_with(
                    {.action = Fault::Error, .at = at, .bytes = size_t(at % 50), .code = code}, dir, ranks);
                EXPECT(error.find(strerror(code)) != error.npos, "operation %ld: '%s'", at, error.c_str());
                visible += fs::exists(dir + "/step_3");
                std::string wrong = at % 2 ? first_fault(posix_disk(), dir, 2) : "";
                EXPECT(wrong.empty(), "operation %ld, %s: %s", at, strerror(code), wrong.c_str());
                const std::string again = save(posix_disk(), dir, 3, ranks, 2);
                EXPECT(again.empty() && acknowledged_in(posix_disk(), dir) == 3,
                       "operation %ld: the next save of the same step: '%s'", at, again.c_str());
                wrong = first_fault(posix_disk(), dir, 3);
                EXPECT(wrong.empty(), "after the next save: %s", wrong.c_str());
            }
        }
    fs::remove_all(dir);
    EXPECT(tried > 100 && visible >= 30, "%zu points, %zu of them after the rename", tried, visible);
}

TEST(short_writes_are_completed) {
    const std::string dir = folder_of_test();
    const Fault fault{.action = Fault::Short, .at = 0, .bytes = 3, .lasting = true};
    EXPECT(save_with(fault, dir, 2).empty(), "not saved");
    const std::string wrong = first_fault(posix_disk(), dir, 3);
    EXPECT(wrong.empty(), "%s", wrong.c_str());
    fs::remove_all(dir);
}
