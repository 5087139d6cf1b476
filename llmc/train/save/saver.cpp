#include "llmc/train/save/saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/context.h"
#include "llmc/base/progress.h"
#include "llmc/base/guard/wait.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/comm/votes.h"

inline namespace saves {

static constexpr int kNice = 10;       // a tenth of a core, if another thread wants the core

static constexpr const char* kSaveWait = "a wait for the disk";

static constexpr double kSlowestDisk = 50e6;    // bytes per second, of all ranks together

// A sync of the last gigabytes has no operation that ends: how long it may take follows from the bytes of all
// ranks.
static Disk timed_syncs(const Disk& disk, const uint64_t& bytes, std::atomic<double>& may_sync_until) {
    Disk timed = disk;
    timed.sync = [sync = disk.sync, &bytes, &may_sync_until](int file) {
        may_sync_until = seconds_now() + double(bytes) / kSlowestDisk;
        const int error = sync(file);
        may_sync_until = 0;
        return error;
    };
    return timed;
}

Saver::Saver(const Axis& w, const CheckpointConfig& k, Votes& v, Disk d)
    : world(w), keep(k), votes(v),
      disk(noticed(timed_syncs(d, job.total_bytes, may_sync_until), [this] {
          operations++;
          beat();       // see await_progress()
      })) {}

Saver::~Saver() { join(thread, kSaveWait); }

// The calling thread to the others. Linux has a priority for each thread, by its id.
static void give_way() {
    const id_t self = id_t(gettid());
    (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + kNice);
}

void Saver::set_running(int code) {
    running = code;
    votes.mine[kSaveDone] = code == 0;
    votes.mine[kSaveFailed] = code < 0;
}

// Sums sent before this call belong to the previous phase.
void Saver::enter(Phase next, int code) {
    phase = next;
    asked_at = votes.sent;
    set_running(code);
}

void Saver::start(std::function<std::string()> work) {
    join(thread, kSaveWait);
    set_running(1);
    const auto run = [this, work = std::move(work)] {
        const std::string failed = work();
        if (!failed.empty()) error = failed;
        set_running(failed.empty() ? 0 : -1);
    };
    const std::string why = start_thread(thread, [this, run, rank = context.rank] {
        context.rank = rank;
        if (job.beside_training) give_way();
        run();
    });
    if (why.empty()) return;
    static std::atomic<bool> said = false;      // shared by the ranks of this process
    if (!said.exchange(true)) warning("training waits for its checkpoints: {}", no_thread(why));
    run();
}

void Saver::begin(SaveJob j) {
    CHECK(!busy(), "checkpoint: step {} begins while step {} is being saved", j.place.step, job.place.step);
    job = std::move(j);
    job.place.attempt = ++attempt;
    error.clear();
    enter(Phase::Shares, 1);
    // before any rank writes: bytes written by other ranks would count twice
    uint64_t room = 0;
    if (const int code = disk.free_bytes(job.place.run_dir, &room))
        error = fmt::format("cannot look for room in {}: {}", job.place.run_dir, strerror(code));
    else if (job.folder != FileId() && job.folder != file_id(job.place.run_dir))
        error = fmt::format("{} is another folder than at the start", job.place.run_dir);
    else if (room < job.total_bytes)
        error = fmt::format("no room for the checkpoint in {}", job.place.run_dir);
    if (any_of(world, !error.empty())) return set_running(-1);
    start([this] {
        DiskQueue q = save_share(disk, job.place, world.index, job.pieces, job.data);
        q.run();
        return q.error;
    });
}

void Saver::prune(const std::string& run_dir) const {
    DiskQueue q = prune_checkpoints(disk, keep, run_dir);
    q.run();
    if (!q.error.empty()) warning("{}", q.error);
}

std::string Saver::first_error() const {
    static constexpr size_t kLength = 256;
    char mine[kLength] = {};
    error.copy(mine, sizeof mine - 1);
    std::vector<char> all(kLength * size_t(world.size));
    const char* texts = world.all_gather(all.data(), mine, kLength);
    for (int r = 0; r < world.size; r++)
        if (const char* text = texts + kLength * size_t(r); *text)
            return world.size > 1 ? fmt::format("rank {}: {}", r, text) : error;
    return "";
}

void Saver::publish() {
    std::vector<int> writers;
    for (int r = 0; r < world.size; r++) writers.push_back(r);
    start([this, writers] {
        DiskQueue q = save_publish(disk, job.place, job.manifest, writers, job.extras);
        q.run();
        if (q.error.empty()) prune(job.place.run_dir);
        return q.error;
    });
}

// Ranks above 0 work in Shares alone.
std::optional<Saver::Outcome> Saver::advance(double done, double failed) {
    if (done + failed < world.size) return std::nullopt;
    join(thread, kSaveWait);
    const bool first = world.index == 0;
    const Phase over = phase;
    if (over == Phase::Clearing) {
        enter(Phase::Idle, 0);
        uint64_t bytes;
        return Outcome{job.place.step, "", error, disk.size(job.place.folder(), &bytes) == EISDIR};
    }
    if (failed > 0) {
        enter(Phase::Clearing, 0);
        error = first_error();
        if (first) start([this] { (void)remove_tree(disk, job.place.temporary()); return std::string(); });
        return std::nullopt;
    }
    if (over == Phase::Publishing) {
        enter(Phase::Idle, 0);
        return Outcome{job.place.step, job.place.folder(), ""};
    }
    enter(Phase::Publishing, 0);
    if (first) publish();
    return std::nullopt;
}

std::optional<Saver::Outcome> Saver::poll() {
    if (!busy() || votes.read <= asked_at) return std::nullopt;
    return advance(votes.sums[kSaveDone], votes.sums[kSaveFailed]);
}

// The supervisor sees completed operations on the disk, and a sync within its time; a disk that hangs
// completes no operation. Peers wait in a collective for this rank meanwhile, and see this rank's progress
// when the collective ends.
void Saver::await_progress() {
    const double begin = seconds_now();
    const uint64_t before = operations;
    const auto progress = [&] { return operations != before || seconds_now() < may_sync_until; };
    wait_until({.what = kSaveWait, .on = Awaits::Own},
               [&] { return running <= 0 || (progress() && seconds_now() - begin >= 0.1); });
}

void Saver::await_share() {
    while (phase == Phase::Shares && running > 0) await_progress();
}

std::optional<Saver::Outcome> Saver::finish() {
    while (busy()) {
        await_progress();
        const int now = running;
        const auto [done, failed] = sum_over<2>(world, {double(now == 0), double(now < 0)});
        if (auto outcome = advance(done, failed)) return outcome;
    }
    return std::nullopt;
}

}  // namespace saves
