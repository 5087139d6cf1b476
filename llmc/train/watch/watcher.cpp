#include "llmc/train/watch/watcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/host/version.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/base/terminal.h"

inline namespace watch {

static constexpr int kDeepestFolder = 8;
static constexpr size_t kMostRuns = 10000, kMostReaders = 4, kEventBytes = 1 << 18;
static constexpr size_t kPictureRows = 20000;   // of all runs, in the first picture of a page
static constexpr double kWalk = 1;              // seconds between two walks
static constexpr double kReading = 0.5;         // seconds of a look
static constexpr double kKeepAlive = 10;        // seconds of silence before a comment

// ---------------------------------------------------------------------------------------------------------
// runs

// Hidden folders and checkpoints hold no runs.
static bool is_entered(const std::string& name) {
    const bool checkpoint = name.size() > 5 && name.starts_with("step_") &&
                            name.find_first_not_of("0123456789", 5) == name.npos;
    return !name.starts_with(".") && !checkpoint;
}

// The name that a page shows: the path. If a page cannot show each byte, every byte beyond ASCII has a code:
// U+FFFD and two digits. Two paths never share a name.
static std::string name_of(const std::string& path) {
    if (path.find("\uFFFD") == path.npos && printable(path) == path) return path;
    std::string name;
    for (const char c : path) {
        if (c >= ' ' && c < 127) name += c;
        else name += fmt::format("\uFFFD{:02x}", static_cast<unsigned char>(c));
    }
    return name;
}

// path: below the folder, with a slash at its end. A folder that vanishes meanwhile is passed over.
static void find_below(const std::string& folder, const std::string& path, int depth,
                       std::map<std::string, std::string>& found) {
    const int no_link = path.empty() ? 0 : O_NOFOLLOW;
    const int fd = open((folder + "/" + path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_link);
    DIR* const list = fd < 0 ? nullptr : fdopendir(fd);
    if (!list) return;
    std::vector<std::string> folders;
    while (const dirent* entry = readdir(list)) {
        const std::string name = entry->d_name;
        int type = entry->d_type;
        if (struct stat s; type == DT_UNKNOWN && fstatat(fd, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0)
            type = IFTODT(s.st_mode);
        if (type == DT_DIR && is_entered(name)) folders.push_back(path + name + "/");
        if (type != DT_REG || name != "metrics.jsonl" || found.size() >= kMostRuns) continue;
        found.emplace(path.empty() ? "." : name_of(path.substr(0, path.size() - 1)), path);
    }
    closedir(list);
    for (const std::string& below : folders)
        if (depth < kDeepestFolder) find_below(folder, below, depth + 1, found);
}

std::map<std::string, std::string> find_runs(const std::string& folder) {
    std::map<std::string, std::string> found;
    find_below(folder, "", 0, found);
    return found;
}

void Watcher::stop() {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
}

void Watcher::note_change() {
    const std::lock_guard lock(mutex_);
    changes_++;
    changed_.notify_all();
}

Runs Watcher::runs() {
    const std::lock_guard lock(mutex_);
    return runs_;
}

std::shared_ptr<WatchedRun> Watcher::find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto at = runs_.find(name);
    return at == runs_.end() ? nullptr : at->second;
}

bool Watcher::wait(uint64_t& seen, double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&] { return stopping_ || changes_ != seen; });
    seen = changes_;
    return !stopping_;
}

// ---------------------------------------------------------------------------------------------------------
// looking and reading

void Watcher::walk() {
    const auto found = find_runs(folder);
    const std::lock_guard lock(mutex_);
    changes_ += std::erase_if(runs_, [&](const auto& run) { return !found.contains(run.first); }) > 0;
    for (const auto& [name, path] : found)
        if (!runs_.contains(name)) {
            runs_[name] = std::make_shared<WatchedRun>(++found_, name, path);
            changes_++;
        }
    changed_.notify_all();
}

void Watcher::remove(const std::string& name) {
    const std::lock_guard lock(mutex_);
    changes_ += runs_.erase(name);
    changed_.notify_all();
}

// Several threads read, as far as threads can be had. False: a file is not read to its end.
bool Watcher::read(const std::vector<std::shared_ptr<WatchedRun>>& changed) {
    if (changed.empty()) return true;
    std::atomic<size_t> next = 0;
    std::atomic<bool> all = true;
    const double end = seconds_now() + kReading;
    const auto work = [&] {
        for (size_t i; seconds_now() < end && (i = next++) < changed.size();) {
            WatchedRun& run = *changed[i];
            if ((!run.viewed && view_run(run, folder)) || !read_run(run, folder)) all = false;
            note_change();
        }
    };
    const size_t readers = std::clamp<size_t>(size_t(cores()), 1, kMostReaders);
    std::vector<std::thread> others(std::min(changed.size(), readers) - 1);
    for (std::thread& t : others) (void)start_thread(t, work);
    work();
    for (std::thread& t : others)
        if (t.joinable()) t.join();
    return all && next >= changed.size();
}

// Whether the run's metrics.jsonl is to be read. A change of its state is a new version.
bool Watcher::look_at(WatchedRun& run) {
    const FileState now = file_state(folder + "/" + run.path + "metrics.jsonl");
    if (!now.there) {
        remove(run.name);
        return false;
    }
    const std::lock_guard lock(run.mutex);
    if (const char* const state = state_of(run); !run.loading && run.state != state) {
        run.state = state;
        run.version++;
    }
    return run.loading || now != run.tail.file;
}

bool Watcher::look(bool walks) {
    const double begin = seconds_now();
    if (walks) walk();
    std::vector<std::shared_ptr<WatchedRun>> changed;
    for (const auto& [name, run] : runs()) {
        const uint64_t before = run->version;
        if (walks) {
            read_life(*run, folder);
            read_beside(*run, folder);
        }
        if (look_at(*run)) changed.push_back(run);
        if (run->version != before) note_change();
    }
    const double end = seconds_now();
    if (walks) next_walk_ = end + std::max(kWalk, 10 * (end - begin));
    // first views first, long files last
    std::stable_partition(changed.begin(), changed.end(), [](const auto& run) { return !run->partly; });
    std::stable_partition(changed.begin(), changed.end(), [](const auto& run) { return !run->viewed; });
    return read(changed);
}

// ---------------------------------------------------------------------------------------------------------
// events

static void append_event(std::string& out, const char* event, const std::string& data) {
    out += "event: ";
    out += event;
    out += "\ndata: " + data + "\n\n";
}

void PageFeed::append(std::string& out) {
    const size_t before = out.size();
    const Runs runs = watcher.runs();
    const bool first = watching == SIZE_MAX;
    size_t unread = 0;
    for (const auto& [name, run] : runs) unread += run->loading;
    if (first || runs.size() != watching || unread != loading) {
        watching = runs.size();
        loading = unread;
        append_event(out, "folder", JsonObject().add("folder", watcher.folder).add("version", commit)
                                        .add("watching", watching).add("loading", loading).str());
    }
    for (auto at = sent.begin(); at != sent.end();) {
        const bool gone = !runs.contains(at->first);
        if (gone) append_event(out, "gone", JsonObject().add("run", at->first).str());
        at = gone ? sent.erase(at) : std::next(at);
    }
    const size_t few = kPictureRows / std::max<size_t>(1, runs.size()) + 50;
    // a few rows of every run go before all rows of any, and these when the run is read to its end
    for (const bool picture : {true, false}) {
        for (const auto& [name, run] : runs) {
            if (out.size() - before > kEventBytes) return;
            if (!run->version) continue;                // nothing is read yet
            SentRun& known = sent[name];
            const bool fresh = known.id != run->id, current = !fresh && known.version == run->version;
            if (picture ? fresh : !current && !run->loading)
                append_event(out, "run", run_json(*run, known, picture ? few : SIZE_MAX));
        }
    }
}

bool PageFeed::next(std::string& out) {
    append(out);
    const double now = seconds_now();
    if (out.empty() && now - spoke > kKeepAlive) out += ": still here\n\n";
    if (out.empty()) return watcher.wait(seen, 1);
    spoke = now;
    return true;
}

}  // namespace watch
