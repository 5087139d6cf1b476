#include "llmc/train/watch/watched_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"
#include "llmc/train/save/run_folder.h"
#include "llmc/train/watch/ranks.h"

inline namespace watch {

static constexpr uint64_t kShortFile = 1 << 21;     // read in full at once, without a first view
static constexpr uint64_t kPart = 1 << 25;          // of a long file, read in a tenth of a second
static constexpr size_t kLooks = 300, kLook = 4096;     // of a first view: places, and bytes of each
static constexpr size_t kMostText = 1 << 20;
static constexpr size_t kRowsOfALook = 64;          // train rows of a look that are kept, of a long run
// Seconds that files of ranks count as current. With a free lock the processes have ended, or the lock is of
// another host, whose disk does not share locks: then files are new again and again.
static constexpr double kBriefly = 10, kLong = 60;

// ---------------------------------------------------------------------------------------------------------
// reading

static uint64_t size_of_open(int fd) {
    struct stat s;
    return fstat(fd, &s) == 0 ? uint64_t(s.st_size) : 0;
}

static std::string bytes_at(int fd, uint64_t offset, size_t count) {
    std::string bytes(count, '\0');
    bytes.resize(size_t(std::max<ssize_t>(0, pread(fd, bytes.data(), count, off_t(offset)))));
    return bytes;
}

// Lines in so many bytes of a file: from the number of newlines in its first bytes.
static uint64_t estimated_lines(int fd, uint64_t bytes) {
    const std::string head = bytes_at(fd, 0, 1 << 16);
    return bytes * uint64_t(std::ranges::count(head, '\n')) / std::max<uint64_t>(1, head.size());
}

// The next power of two: thinning doubles, and so the rows that are kept here fit its grid.
static uint64_t every_for(uint64_t rows, uint64_t wanted) {
    return std::bit_ceil(std::max<uint64_t>(1, (rows + wanted - 1) / wanted));
}

static void replace_history(WatchedRun& run, History history) {
    run.replaced += run.history.generation() + 1;
    run.history = std::move(history);
    run.viewed = true;
    run.version++;
}

// Each look stands for the rows up to the next one.
static History first_view(int fd, uint64_t size) {
    History view;
    const double apart = double(size - kLook) / kLooks;
    for (size_t look = 0; look <= kLooks; look++) {
        const uint64_t at = (size - kLook) * look / kLooks;
        const std::string bytes = bytes_at(fd, at, kLook);
        const size_t begin = at ? bytes.find('\n') + 1 : 0, end = bytes.rfind('\n') + 1;
        if (begin >= end) continue;
        const double before = view.seconds;
        view.feed(std::string_view(bytes).substr(begin, end - begin), at, UINT64_MAX);
        view.seconds = before + (view.seconds - before) * apart / double(end - begin);
    }
    view.places.clear();
    return view;
}

bool view_run(WatchedRun& run, const std::string& folder) {
    const Fd file = open_below(folder, run.path + "metrics.jsonl");
    const uint64_t size = file ? size_of_open(file.fd) : 0;
    if (size <= kShortFile) return false;
    History view = first_view(file.fd, size);
    const std::lock_guard lock(run.mutex);
    run.tail.file = file_state(folder + "/" + run.path + "metrics.jsonl");
    replace_history(run, std::move(view));
    return true;
}

// Reads the next part of a file from its start; its last part makes the rows the run's history. False: more
// parts follow.
static bool read_part(WatchedRun& run, int fd) {
    if (!run.partly) {
        run.partly.emplace(run.whole ? History::whole() : History());
        const size_t most = run.partly->history.train.most;
        run.partly->every = every_for(estimated_lines(fd, size_of_open(fd)), most);
    }
    auto& [history, tail, every] = *run.partly;
    const uint64_t begin = tail.position, end = run.whole ? UINT64_MAX : begin + kPart;
    const auto feed = [&](std::string_view lines) { history.feed(lines, tail.position, every); };
    const bool same = tail.read(fd, feed, end);
    if (same && tail.position > begin && tail.file.size > end) return false;
    if (same) {
        const std::lock_guard lock(run.mutex);
        run.tail = std::move(tail);
        run.checkpoint_tail = run.eval_tail = {};
        replace_history(run, std::move(history));
        run.loading = false;
    }
    run.partly.reset();
    return same;
}

// False: the file is another one.
static bool read_more(WatchedRun& run, int fd) {
    const std::lock_guard lock(run.mutex);
    const uint64_t before = run.tail.position;
    const bool same = run.tail.read(fd, [&](std::string_view lines) {
        const Columns& train = run.history.train;
        const size_t room = train.most - std::min(train.most, train.rows());
        run.history.feed(lines, run.tail.position, every_for(uint64_t(std::ranges::count(lines, '\n')),
                                                             std::max(kRowsOfALook, room)));
    });
    if (run.tail.position != before) run.version++;
    return same;
}

// New rows of a file beside metrics.jsonl that have a step join the history. Where the file is another one,
// everything is read anew.
static void follow(WatchedRun& run, const Fd& file, Tail& tail, void (History::*take)(const MetricsRow&)) {
    const std::lock_guard lock(run.mutex);
    const auto take_lines = [&](std::string_view lines) {
        each_metrics_row(lines, [&](const MetricsRow& row) {
            if (std::isnan(row.number("step"))) return;
            (run.history.*take)(row);
            run.version++;
        });
    };
    if (!(file ? tail.read(file.fd, take_lines) : tail.position == 0)) run.loading = true;
}

void read_beside(WatchedRun& run, const std::string& folder) {
    if (run.loading) return;
    const auto file = [&](const char* name) { return open_below(folder, run.path + name); };
    follow(run, file("checkpoints.jsonl"), run.checkpoint_tail, &History::checkpoint);
    follow(run, file("evals.jsonl"), run.eval_tail, &History::score);
}

// A JSON file of the run, on one line; null where it is no JSON.
static std::string json_below(const std::string& folder, const std::string& path) {
    try {
        return to_text(parse_json(text_below(folder, path, kMostText)));
    } catch (const JsonError&) {
        return "null";
    }
}

static void read_config(WatchedRun& run, const std::string& folder) {
    const FileState now = file_state(folder + "/" + run.path + "config.json");
    const std::lock_guard lock(run.mutex);
    if (now == run.config_file) return;
    run.config_file = now;
    run.config = json_below(folder, run.path + "config.json");
    run.replaced++;
    run.version++;
}

bool read_run(WatchedRun& run, const std::string& folder) {
    const Fd file = open_below(folder, run.path + "metrics.jsonl");
    if (!file) return true;
    read_config(run, folder);
    if (!run.loading && !read_more(run, file.fd)) run.loading = true;
    const bool all = !run.loading || read_part(run, file.fd);
    read_beside(run, folder);
    return all;
}

void read_life(WatchedRun& run, const std::string& folder) {
    const std::optional<bool> locked = is_locked(open_below(folder, run.path + kLockFile));
    std::string ranks = read_ranks(folder, run.path, locked == false ? kBriefly : kLong);
    const std::lock_guard lock(run.mutex);
    if (ranks == run.ranks && locked == run.locked) return;
    run.ranks = std::move(ranks);
    run.locked = locked;
    run.version++;
}

// ---------------------------------------------------------------------------------------------------------
// the run object

double age_of(const WatchedRun& run) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::max(0., std::chrono::duration<double>(now).count() - 1e-9 * double(run.tail.file.changed));
}

const char* state_of(const WatchedRun& run) {
    if (run.history.ended) return "done";
    if (run.locked == false && run.ranks == "null") return "stopped";
    const double step = 1e-3 * run.history.ms;
    return age_of(run) < std::max(15., 10 * step) ? "training" : "quiet";
}

static uint64_t generation_of(const WatchedRun& run) { return run.replaced + run.history.generation(); }

// What was added since `sent`, which becomes what there is.
static std::string additions(const Newest& list, uint64_t& sent) {
    return list.text(std::exchange(sent, list.seen));
}

static std::string additions(const Columns& table, size_t& sent, size_t most = SIZE_MAX) {
    return columns_json(table, std::exchange(sent, table.rows()), most);
}

static std::string tasks_json(const History& history, SentRun& sent) {
    JsonObject all;
    for (const auto& [name, scores] : history.tasks)
        if (size_t& rows = sent.rows["tasks/" + name]; rows != scores.rows())
            all.raw(name, additions(scores, rows));
    return all.str();
}

std::string run_json(WatchedRun& run, SentRun& sent, size_t most) {
    const std::lock_guard lock(run.mutex);
    const History& h = run.history;
    const bool reset = sent.id != run.id || sent.generation != generation_of(run);
    if (reset) sent = {.id = run.id, .generation = generation_of(run)};
    sent.version = run.version;
    JsonObject all;
    all.add("run", run.name).add("reset", reset).add("state", state_of(run));
    all.add("age", std::round(age_of(run) * 10) / 10);
    if (reset) all.raw("config", run.config);
    all.raw("start", h.start.empty() ? "null" : h.start);
    for (const auto& [name, table] : kTables)
        all.raw(name, additions(h.*table, sent.rows[name], table == &History::train ? most : SIZE_MAX));
    all.add("sampled", h.train.sampled()).raw("tasks", tasks_json(h, sent));
    all.raw("health", additions(h.health, sent.health)).raw("samples", additions(h.samples, sent.samples));
    all.raw("marks", additions(h.marks, sent.marks)).raw("ranks", run.ranks);
    if (h.train.rows() > most) sent.version = sent.generation = 0;
    return all.str();
}

// ---------------------------------------------------------------------------------------------------------
// rows of some steps

std::string rows_json(WatchedRun& run, const std::string& folder, double from, double to, size_t points) {
    History part = History::whole();
    part.first_step = from;
    part.last_step = to;
    Tail tail;
    uint64_t end = UINT64_MAX;
    {
        const std::lock_guard lock(run.mutex);
        const auto& places = run.history.places;
        const auto at = [&](double step) {
            return std::ranges::lower_bound(places, step, {}, &History::Place::step);
        };
        const std::vector<double>* const steps = run.history.train.find("step");
        if (steps && !steps->empty()) to = std::min(to, steps->back());
        if (const auto next = at(to); next != places.end()) end = next->offset;
        if (const auto next = at(from); next != places.begin()) {
            tail.position = next[-1].offset;
            part.seconds = next[-1].seconds;
        }
    }
    if (const Fd file = open_below(folder, run.path + "metrics.jsonl")) {
        const uint64_t bytes = std::min(end, size_of_open(file.fd)) - tail.position;
        const double rows = std::clamp(to - from + 1, 1., 1. + double(estimated_lines(file.fd, bytes)));
        const uint64_t every = every_for(uint64_t(rows), points);
        tail.read(file.fd, [&](std::string_view lines) { part.feed(lines, tail.position, every); }, end);
    }
    return JsonObject().add("run", run.name).raw("train", columns_json(part.train)).str();
}

}  // namespace watch
