// Which rank of a process hangs, judged by the page that the ranks write and the time that passes.
//
// A rank hangs when it makes no progress for a time (hang_limit). One that waits in a collective is a victim:
// it is blamed when all ranks of the process have waited so long, and kCourtesy seconds more, in which the
// supervisor of the culprit speaks. Processes do not see each other, so a single collective that takes longer
// than the two together counts as a hang, even while the rank that it waits for gets further.
#pragma once
#include <vector>

#include "llmc/base/guard/progress_page.h"

inline constexpr double kCourtesy = 2;      // seconds that a victim leaves to the culprit

// Seconds without progress that count as a hang. asked: run.hang_timeout; 0: five times the slowest step so
// far, at least a minute. What is done at the start (measuring, first touch of memory) has a minute anyway.
double hang_limit(double asked, double slowest_step, bool starting);

struct HangWatch {
    struct Slot {
        uint64_t beats = 0;
        int64_t step = 0;
        Phase phase = Phase::Start;
        double silent = 0, in_phase = 0;    // seconds
    };

    const ProgressPage& page;
    double slowest_step = 0;
    std::vector<Slot> slots = {};

    void look(double seconds);              // seconds: since the look before
    // The slot to blame, or -1. stopped: the process is, by a signal, and waits for nobody.
    int blamed(bool stopped) const;
    bool waits(int slot) const { return page.slots[slot].collective.text[0]; }

private:
    double limit(const Slot& s, bool stopped) const;
};
