// What --watch says of a run: training, quiet, stopped or done.
#include <fcntl.h>
#include <sys/inotify.h>

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

// Files opened in a folder since the call before.
static size_t opened(const Fd& watch) {
    alignas(inotify_event) char events[1 << 16];
    size_t count = 0;
    for (ssize_t n; (n = read(watch.fd, events, sizeof events)) > 0;)
        for (ssize_t at = 0; at < n;) {
            const auto* const e = reinterpret_cast<const inotify_event*>(events + at);
            count += e->len > 0;
            at += ssize_t(sizeof *e + e->len);
        }
    return count;
}

// All processes wait: the one of rank 0 reads every file, each of the others the file of rank 0 alone.
TEST(processes_that_wait_read_two_files_each) {
    const string ranks = folder("many_others");
    constexpr int kRanks = 300;
    const auto name = [](int rank) { return std::to_string(rank) + ".json"; };
    const auto file = [&](int rank, int beats, const string& more = "", int seconds_ago = 0) {
        write_ago(ranks + "/" + name(rank),
                  fmt::format(R"({{"event":"rank","rank":{},"host":"node","beats":{}}})", rank, beats) +
                      "\n" + more, seconds_ago);
    };
    const auto first_page = std::make_unique<ProgressPage>(), page = std::make_unique<ProgressPage>();
    OtherRanks first(ranks, "0.json", 2), seventh(ranks, "7.json", 2);
    const Fd watch(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    for (int rank = 0; rank < kRanks; rank++) file(rank, 1, "", 60);
    EXPECT(watch && inotify_add_watch(watch.fd, ranks.c_str(), IN_OPEN) >= 0, "no inotify");
    const auto look = [&] {                     // in each process, and rank 0's writes its file anew
        opened(watch);
        first.look(*first_page);
        const size_t all = opened(watch);
        file(0, 1, first.told(*first_page));
        opened(watch);
        seventh.look(*page);
        return std::pair(all, opened(watch));
    };
    for (int period = 0; period < 3; period++) {
        const auto [all, one] = look();
        const size_t most = kRanks - (period == 0);         // and a second time the file that is silent
        EXPECT(all == most && one == 1, "period %d: %zu and %zu files", period, all, one);
    }
    EXPECT(first_page->others == 0 && page->others == 0, "nobody makes progress");
    for (const int rank : {3, 4, 5}) file(rank, 2);
    look();
    EXPECT(first_page->others == 1 && page->others == 1, "%d of 3", int(page->others));
    file(5, 3);
    const auto [busy, one] = look();
    EXPECT(busy == 1 && one == 1 && page->others == 2, "the busy rank is read first: %zu, %zu", busy, one);
    look(), look();
    EXPECT(first_page->others == 2 && page->others == 2, "all stopped at once: %d", int(page->others));
    for (int rank = 1; rank < kRanks; rank++) file(rank, rank == 5 ? 3 : 1, "", rank == 9 ? 9 : 0);
    look();
    EXPECT(page->silent_other.text == string("rank 9 on node"), "'%s'", page->silent_other.text);
    file(0, 1, first.told(*first_page), 9);
    seventh.look(*page);
    file(4, 2);
    opened(watch);
    seventh.look(*page);
    const size_t all = opened(watch);
    EXPECT(all == kRanks - 1 && page->others == 3, "rank 0 is silent, rank 4 is not: %zu files, %d", all,
           int(page->others));
}
