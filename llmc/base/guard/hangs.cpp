#include "llmc/base/guard/hangs.h"

#include <algorithm>

inline namespace guard {

static constexpr double kMinute = 60;

double hang_limit(double asked, double slowest_step, bool starting) {
    const double limit = asked > 0 ? asked : std::max(kMinute, 5 * slowest_step);
    return starting ? std::max(limit, kMinute) : limit;
}

double HangFinder::limit(size_t local, bool stopped) const {
    const bool starts = ranks[local].phase == Phase::Start && !stopped;
    const double patience = stopped ? 0 : page.ranks[local].patience.load();
    return std::max(hang_limit(page.hang_timeout, slowest_step, starts), patience);
}

void HangFinder::look(double seconds) {
    const uint64_t seen = page.others;
    others_silent = seen == others ? others_silent + seconds : 0;
    others = seen;
    ranks.resize(size_t(page.used.load()));
    for (size_t i = 0; i < ranks.size(); i++) {
        Seen& s = ranks[i];
        const RankProgress& r = page.ranks[i];
        const Seen now = {.beats = r.beats, .step = r.step, .phase = r.phase};
        s.silent = now.beats == s.beats ? s.silent + seconds : 0;
        s.in_phase += seconds;
        if (now.step != s.step || now.phase != s.phase) {
            if (s.phase == Phase::Train) slowest_step = std::max(slowest_step, s.in_phase);
            s.in_phase = 0;
        }
        s.beats = now.beats;
        s.step = now.step;
        s.phase = now.phase;
    }
}

int HangFinder::blamed(bool stopped) const {
    int culprit = -1, victim = -1;
    bool all = true;
    for (int i = 0; i < int(ranks.size()); i++) {
        const Seen& s = ranks[size_t(i)];
        if (!page.ranks[i].joined) continue;
        const auto longest = [&](int other) { return other < 0 || s.silent > ranks[size_t(other)].silent; };
        const double most = limit(size_t(i), stopped);
        if (s.silent >= most && (stopped || !waits(i)) && longest(culprit)) culprit = i;
        if (std::min(s.silent, others_silent) < most + kCourtesy + page.news_delay) all = false;
        else if (longest(victim)) victim = i;
    }
    if (culprit >= 0) return culprit;
    return all ? victim : -1;
}

}  // namespace guard
