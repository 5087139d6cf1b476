#include "llmc/train/log/rank_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/json/json.h"
#include "llmc/base/progress.h"
#include "llmc/train/log/other_ranks.h"

inline namespace logs {

static constexpr double kGlance = 0.25, kPeriod = 2;        // seconds between reads of the page, and writes
static constexpr double kStart = 10;                        // a start that fails earlier leaves no file
static constexpr double kFilesPerSecond = 16;               // of the whole job

namespace {
// What a rank did at the latest look, and since when.
struct Doing {
    int rank = -1;                          // -1: none has joined
    int64_t step = 0;
    Phase phase = Phase::Start;
    std::string wait;                       // that the rank is in (base/guard/wait.h)
    Awaits awaits = Awaits::Ranks;
    uint64_t beats = 0;
    double since = 0;

    std::string collective() const { return awaits == Awaits::Ranks ? wait : ""; }
};
}  // namespace

// Another thread writes the word meanwhile; every state of the text ends in a zero (SharedWord).
__attribute__((no_sanitize("thread"))) static std::string text_of(const SharedWord& word) {
    std::string text;
    for (const volatile char* c = word.text; *c; c = c + 1) text += *c;
    return text;
}

static void glance(std::vector<Doing>& all) {
    const double now = seconds_now();
    all.resize(size_t(std::clamp<int>(progress_page->used, 0, ProgressPage::kMostRanks)));
    for (size_t i = 0; i < all.size(); i++) {
        const RankProgress& r = progress_page->ranks[i];
        Doing is{.rank = r.joined - 1, .step = r.step, .phase = r.phase, .wait = text_of(r.wait),
                 .awaits = r.awaits, .beats = r.beats, .since = now};
        const Doing& was = all[i];
        if (was.rank == is.rank && was.step == is.step && was.phase == is.phase && was.wait == is.wait)
            is.since = was.since;
        all[i] = is;
    }
}

static std::string text_of_ranks(const std::vector<Doing>& all, const MeshShape& shape) {
    static const std::string host = host_name();
    const double now = seconds_now();
    std::string text;
    for (const Doing& d : all) {
        if (d.rank < 0) continue;
        JsonLine line("rank");
        line.add("rank", d.rank).add("host", host);
        for (const MeshAxis a : shown_axes(shape)) line.add(axis_rows[a].name, index_on(shape, a, d.rank));
        line.add("doing", name_of(d.phase)).add("step", d.step);
        line.add("collective", d.collective()).add("wait", d.wait);
        line.add("beats", int64_t(d.beats)).add("seconds", double(int64_t((now - d.since) * 10)) / 10);
        text += line.str();
    }
    return text;
}

RankFile::RankFile(const Config& cfg, const Mesh& mesh, bool trains) {
    const bool first = progress_page && context.progress == progress_page->ranks;
    if (!first || (!trains && mesh.world.size == 1)) return;
    folder_ = cfg.run.dir + (trains ? "/ranks" : "/ranks_that_read");
    path_ = folder_ + "/" + std::to_string(mesh.rank) + ".json";
    const MeshShape shape = mesh_shape(cfg.parallel, mesh.world.size);
    const double limit = cfg.run.hang_timeout, asked = limit > 0 ? std::min(kPeriod, limit / 4) : kPeriod;
    period_ = std::max(asked, mesh.world.size / kFilesPerSecond);
    if (!start_thread(thread_, [this, shape] { write_until_the_end(shape); }).empty()) path_.clear();
}

RankFile::~RankFile() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        end_ = true;
    }
    ended_.notify_all();
    thread_.join();
    unlink(path_.c_str());
    rmdir(folder_.c_str());                 // by the last process
}

void RankFile::write_until_the_end(const MeshShape& shape) {
    OtherRanks others(folder_, path_.substr(folder_.size() + 1), period_);
    const bool looks = ranks_of(shape) != progress_page->used;
    unlink(path_.c_str());                  // of an earlier run: look() starts from this run's first
    // from the rank to its file, to rank 0's file, to this process
    if (looks) progress_page->news_delay = 3 * (period_ + kGlance);
    std::vector<Doing> all;
    const double started = seconds_now();
    double written = started;
    for (std::unique_lock lock(mutex_);
         !ended_.wait_for(lock, std::chrono::duration<double>(kGlance), [&] { return end_; });) {
        glance(all);
        const double now = seconds_now();
        const bool starts = std::ranges::all_of(all, [](const Doing& d) { return d.phase == Phase::Start; });
        if ((starts && now - started < kStart) || now - written < period_) continue;
        const bool wait = std::ranges::all_of(all, [&](const Doing& d) {
            return d.rank < 0 || (!d.collective().empty() && now - d.since >= period_);
        });
        written = now;
        lock.unlock();
        if (looks && (wait || others.tells())) others.look(*progress_page);
        std::string text = text_of_ranks(all, shape);
        if (looks && others.tells()) text += others.told(*progress_page);
        if (try_own_folder(folder_).empty()) (void)try_replace_file(path_, text);
        lock.lock();
    }
}

}  // namespace logs
