// What --watch says of a run: training, quiet, stopped or done.
#include <fcntl.h>

#include <chrono>

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
