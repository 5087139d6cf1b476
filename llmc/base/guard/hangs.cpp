#include "llmc/base/guard/hangs.h"

#include <algorithm>

static constexpr double kMinute = 60;

double hang_limit(double asked, double slowest_step, bool starting) {
    const double limit = asked > 0 ? asked : std::max(kMinute, 5 * slowest_step);
    return starting ? std::max(limit, kMinute) : limit;
}

double HangWatch::limit(const Slot& s, bool stopped) const {
    return hang_limit(page.hang_timeout, slowest_step, s.phase == Phase::Start && !stopped);
}

void HangWatch::look(double seconds) {
    slots.resize(size_t(page.used.load()));
    for (size_t i = 0; i < slots.size(); i++) {
        Slot& s = slots[i];
        const RankProgress& r = page.slots[i];
        const Slot now = {.beats = r.beats, .step = r.step, .phase = r.phase};
        s.silent = now.beats == s.beats ? s.silent + seconds : 0;
        s.in_phase += seconds;
        if (now.step != s.step || now.phase != s.phase) {
            if (s.phase == Phase::Train) slowest_step = std::max(slowest_step, s.in_phase);
            s.in_phase = 0;
        }
        s.beats = now.beats, s.step = now.step, s.phase = now.phase;
    }
}

int HangWatch::blamed(bool stopped) const {
    int culprit = -1, victim = -1;
    bool all = true;
    for (int i = 0; i < int(slots.size()); i++) {
        const Slot& s = slots[size_t(i)];
        if (!page.slots[i].joined) continue;
        const auto longest = [&](int other) { return other < 0 || s.silent > slots[size_t(other)].silent; };
        const double most = limit(s, stopped);
        if (s.silent >= most && (stopped || !waits(i)) && longest(culprit)) culprit = i;
        if (s.silent < most + kCourtesy) all = false;
        else if (longest(victim)) victim = i;
    }
    return culprit >= 0 ? culprit : all ? victim : -1;
}
