// What --watch says of a run: training, quiet, stopped or done.
#include <fcntl.h>

#include <chrono>

#include "llmc/train/log/other_ranks.h"
#include "llmc/train/save/run_folder.h"
#include "test/watched_folder.h"

using namespace test;
using std::string;
namespace fs = std::filesystem;

static void write_ago(const string& path, const string& text, int seconds) {
    write_text(path, text);
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

static string state_of(WatchedFolder& f) {
    f.update();
    return f.page.runs["a"]["state"];
}

TEST(a_run_is_stopped_when_its_processes_have_ended) {
    const string root = folder("states"), run = root + "/a", file = run + "/metrics.jsonl";
    const string rows = start_row() + train_rows(1, 5);
    const string rank = "{\"event\":\"rank\",\"rank\":0,\"host\":\"n\",\"doing\":\"train\",\"step\":5}\n";
    write_text(file, rows);
    WatchedFolder f(root);
    EXPECT(state_of(f) == "training", "fresh rows, and no lock: of another program, or a copy");
    write_ago(file, rows, 100);
    EXPECT(state_of(f) == "quiet", "old rows, and nothing says that the run ended");
    {
        const RunLock lock(run);
        EXPECT(state_of(f) == "quiet", "old rows, and a process holds the lock");
        write_ago(run + "/ranks/0.json", rank, 30);
        EXPECT(state_of(f) == "quiet" && f.page.runs["a"]["ranks"].is_array(), "ranks of a slow disk");
        append_text(file, train_row(6));
        EXPECT(state_of(f) == "training", "a process holds the lock and writes");
    }
    EXPECT(state_of(f) == "stopped" && f.page.runs["a"]["ranks"].is_null(), "killed just now");
    write_text(run + "/ranks/0.json", rank);
    EXPECT(state_of(f) == "training", "a lock that another host does not share, and ranks that write");
    write_ago(file, rows, 100);
    EXPECT(state_of(f) == "quiet", "the same without rows");
    fs::remove_all(run + "/ranks");
    EXPECT(state_of(f) == "stopped", "ended by itself");
    write_ago(file, rows + "{\"event\":\"done\",\"step\":5,\"peak_bytes\":5000}\n", 100);
    EXPECT(state_of(f) == "done", "done");
}

// The lock is looked at, never taken: a start beside the watcher succeeds.
TEST(a_look_at_the_lock_takes_nothing) {
    const string run = folder("looked_at");
    write_text(run + "/metrics.jsonl", start_row());
    { const RunLock first(run); }
    const Fd seen(open((run + "/" + kLockFile).c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT(is_locked(seen) == false, "free");
    const RunLock again(run);
    EXPECT(is_locked(seen) == true, "held");
    EXPECT(!is_locked(Fd()).has_value(), "no file");
}

// A process whose ranks wait reads what the others do, and tells its supervisor.
TEST(other_processes_are_seen_to_make_progress_or_to_be_silent) {
    const string ranks = folder("others");
    const auto file = [&](int rank, int beats, int seconds_ago) {
        write_ago(fmt::format("{}/{}.json", ranks, rank),
                  fmt::format(R"({{"event":"rank","rank":{},"host":"node{}","beats":{}}})", rank, rank,
                              beats) + "\n", seconds_ago);
    };
    const auto page = std::make_unique<ProgressPage>();
    OtherRanks others(ranks, "0.json", 2);
    file(0, 1, 100), file(1, 10, 99), file(2, 20, 98), file(3, 30, 500);        // 3: of an earlier run
    others.look(*page);
    EXPECT(page->others == 0, "nothing to compare with");
    file(0, 1, 10), file(1, 11, 9), file(2, 20, 9);
    others.look(*page);
    EXPECT(page->others == 1 && !page->silent_other.text[0], "rank 1 makes progress");
    file(0, 1, 5), file(1, 11, 5), file(2, 20, 9);
    others.look(*page);
    EXPECT(page->others == 1 && !page->silent_other.text[0], "4 s are no silence: '%s'",
           page->silent_other.text);
    file(0, 1, 1), file(1, 11, 2);
    others.look(*page);
    EXPECT(page->others == 1 && page->silent_other.text == string("rank 2 on node2"), "'%s'",
           page->silent_other.text);
    file(2, 21, 0);
    others.look(*page);
    EXPECT(page->others == 2 && !page->silent_other.text[0], "rank 2 is back: '%s'", page->silent_other.text);
}
