#include "llmc/train/save/saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/start_thread.h"
#include "llmc/comm/votes.h"

static constexpr int kNice = 10;       // a tenth of a core that another thread wants as well

Saver::Saver(const Axis& w, const CheckpointConfig& k, Disk d)
    : world(w), keep(k), disk(noticed(d, [this] { operations++, beat(); })) {}      // beat: see start()

Saver::~Saver() { if (thread.joinable()) thread.join(); }

// The calling thread to the others. Linux has a priority for each thread, by its id.
static void give_way() {
    const id_t self = id_t(gettid());
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNice);
}

void Saver::start(std::function<std::string()> work) {
    if (thread.joinable()) thread.join();
    running = 1;
    const auto run = [this, work = std::move(work)] {
        const std::string failed = work();
        if (!failed.empty()) error = failed;
        running = failed.empty() ? 0 : -1;
    };
    const std::string why = start_thread(thread, [this, run, rank = context.rank] {
        context.rank = rank;
        if (job.beside_training) give_way();
        run();
    });
    if (why.empty()) return;
    static std::atomic<bool> said = false;      // of all ranks of this process
    if (!said.exchange(true)) warning("training waits for its checkpoints: %s", no_thread(why).c_str());
    run();
}

void Saver::begin(SaveJob j) {
    CHECK(!busy(), "checkpoint: step %ld begins while step %ld is being saved", j.place.step, job.place.step);
    job = std::move(j);
    job.place.attempt = ++attempt;
    error.clear();
    stage = Stage::Parts;
    // before any rank writes: what the others have written would count twice
    uint64_t room = 0;
    if (const int code = disk.free_bytes(job.place.run_dir, &room))
        error = strf("cannot look for room in %s: %s", job.place.run_dir.c_str(), strerror(code));
    else if (job.folder != FileId() && job.folder != file_id(job.place.run_dir))
        error = strf("%s is another folder than at the start", job.place.run_dir.c_str());
    else if (room < job.total_bytes)
        error = strf("no room for the checkpoint in %s", job.place.run_dir.c_str());
    if (any_of(world, !error.empty())) {
        running = -1;
        return;
    }
    start([this] {
        DiskQueue q = save_part(disk, job.place, world.index, job.pieces, job.data);
        q.run();
        return q.error;
    });
}

void Saver::prune(const std::string& run_dir) const {
    DiskQueue q = prune_checkpoints(disk, keep, run_dir);
    q.run();
    if (!q.error.empty()) warning("%s", q.error.c_str());
}

Saver::Progress Saver::mine() const {
    if (stage == Stage::Idle) return {};
    const int now = running;
    return {.done = double(now == 0), .failed = double(now < 0)};
}

std::string Saver::first_error() const {
    static constexpr size_t kLength = 256;
    char mine[kLength] = {};
    snprintf(mine, sizeof mine, "%s", error.c_str());
    std::vector<char> all(kLength * size_t(world.size));
    const char* texts = world.all_gather(all.data(), mine, kLength);
    for (int r = 0; r < world.size; r++)
        if (const char* text = texts + kLength * size_t(r); *text)
            return world.size > 1 ? strf("rank %d: %s", r, text) : error;
    return "";
}

std::optional<Saver::Outcome> Saver::take(const Progress& sum) {
    if (stage == Stage::Idle || sum.done + sum.failed < world.size) return std::nullopt;
    if (thread.joinable()) thread.join();
    turns++;
    const bool first = world.index == 0;
    if (stage == Stage::Clearing) {
        stage = Stage::Idle;
        uint64_t bytes;
        return Outcome{job.place.step, "", error, disk.size(job.place.folder(), &bytes) == EISDIR};
    }
    if (sum.failed > 0) {
        stage = Stage::Clearing;
        error = first_error();
        if (first) start([this] { (void)remove_tree(disk, job.place.temporary()); return std::string(); });
        else running = 0;
        return std::nullopt;
    }
    if (stage == Stage::Publishing) {
        stage = Stage::Idle;
        return Outcome{job.place.step, job.place.folder(), ""};
    }
    stage = Stage::Publishing;
    if (!first) return std::nullopt;
    start([this] {
        std::vector<int> writers;
        for (int r = 0; r < world.size; r++) writers.push_back(r);
        DiskQueue q = save_publish(disk, job.place, job.manifest, writers, job.extras);
        q.run();
        if (q.error.empty()) prune(job.place.run_dir);
        return q.error;
    });
    return std::nullopt;
}

// Operations on the disk that end are what the supervisor sees, none of a disk that answers no more. Peers
// wait for this rank in a collective meanwhile: they see its progress as it comes back to them.
void Saver::get_further() {
    const double begin = seconds_now();
    const uint64_t before = operations;
    while (running > 0 && (operations == before || seconds_now() - begin < 0.1))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    beat();
}

std::optional<Saver::Outcome> Saver::finish() {
    while (busy()) {
        get_further();
        const Progress p = mine();
        const auto [done, failed] = sum_over<2>(world, {p.done, p.failed});
        if (auto outcome = take({done, failed})) return outcome;
    }
    return std::nullopt;
}
