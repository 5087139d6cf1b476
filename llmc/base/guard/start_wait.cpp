#include "llmc/base/guard/start_wait.h"

#include <algorithm>
#include <chrono>

#include "llmc/base/check.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/progress.h"

static constexpr double kLate = 120;
static constexpr std::chrono::milliseconds kBeat(200);

double start_patience() {
    return std::max(kLate, progress_page ? progress_page->hang_timeout.load() : 0);
}

StartWait::StartWait(const std::string& what, double seconds) {
    RankProgress* const p = context.progress;
    if (!p) return;
    p->collective = what.c_str();
    const double end = seconds_now() + seconds;
    (void)start_thread(thread, [this, what, seconds, end, p, rank = context.rank] {
        context.rank = rank;
        context.progress = p;
        beat_until(end, seconds, what);
    });
}

void StartWait::beat_until(double end, double seconds, const std::string& what) {
    std::unique_lock lock(mutex);
    while (!changed.wait_for(lock, kBeat, [this] { return over; })) {
        beat();
        if (seconds_now() < end) continue;
        fatal(kExitRestart, __FILE__, __LINE__, "{}: {:g} s have passed, and not all ranks are here: some "
              "came late, or cannot reach this host. A longer run.hang_timeout waits longer", what, seconds);
    }
}

StartWait::~StartWait() {
    if (RankProgress* p = context.progress) p->collective = "";
    {
        const std::lock_guard lock(mutex);
        over = true;
    }
    changed.notify_all();
    if (thread.joinable()) thread.join();
    beat();
}
