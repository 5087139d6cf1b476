// Finds the hung rank of a process from the progress page and the time.
//
// A rank hangs when its progress stops for hang_limit seconds, unless the rank waits for other ranks. If all
// ranks of a process wait for others for the limit plus kCourtesy seconds, and no rank of another process
// makes progress either, blamed() returns a waiting rank. A wait of the start may take longer
// (RankProgress::patience). The courtesy is time for the hung rank's supervisor to report.
// Processes see each other by their files in run.dir alone. Without these (tools, no shared run.dir), a
// collective longer than limit + courtesy counts as a hang, even if the awaited rank makes progress.
#pragma once
#include <vector>

#include "llmc/base/guard/progress_page.h"

inline namespace guard {

inline constexpr double kCourtesy = 2;      // seconds beyond the limit before a waiting rank is blamed

// Seconds without progress that count as a hang. asked: run.hang_timeout; 0: five times the slowest step so
// far, at least a minute. starting: the rank is in Phase::Start (measuring, first touch of memory); the limit
// is at least a minute.
double hang_limit(double asked, double slowest_step, bool starting);

struct HangFinder {
    struct Seen {
        uint64_t beats = 0;
        int64_t step = 0;
        Phase phase = Phase::Start;
        double silent = 0, in_phase = 0;    // seconds
    };

    const ProgressPage& page;
    double slowest_step = 0;
    uint64_t others = 0;                    // ProgressPage::others at the last look
    double others_silent = 0;               // seconds since other processes were seen to make progress
    std::vector<Seen> ranks = {};

    void look(double seconds);              // reads the page; seconds: since the last call
    // The place in `ranks` of the rank to blame, or -1. stopped: a signal (SIGSTOP) suspended the process; no
    // rank counts as waiting.
    int blamed(bool stopped) const;
    bool waits(int local) const { return page.ranks[local].waits_for_ranks(); }

private:
    double limit(size_t local, bool stopped) const;
};

}  // namespace guard
