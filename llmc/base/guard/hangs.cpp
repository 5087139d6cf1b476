#include "llmc/base/guard/hangs.h"

#include <algorithm>

static constexpr double kMinute = 60;

double hang_limit(double asked, double slowest_step, bool starting) {
    const double limit = asked > 0 ? asked : std::max(kMinute, 5 * slowest_step);
    return starting ? std::max(limit, kMinute) : limit;
}

double HangWatch::limit(const Watched& w, bool stopped) const {
    return hang_limit(page.hang_timeout, slowest_step, w.phase == Phase::Start && !stopped);
}

void HangWatch::look(double seconds) {
    const uint64_t seen = page.others;
    others_silent = seen == others ? others_silent + seconds : 0;
    others = seen;
    ranks.resize(size_t(page.used.load()));
    for (size_t i = 0; i < ranks.size(); i++) {
        Watched& w = ranks[i];
        const RankProgress& r = page.ranks[i];
        const Watched now = {.beats = r.beats, .step = r.step, .phase = r.phase};
        w.silent = now.beats == w.beats ? w.silent + seconds : 0;
        w.in_phase += seconds;
        if (now.step != w.step || now.phase != w.phase) {
            if (w.phase == Phase::Train) slowest_step = std::max(slowest_step, w.in_phase);
            w.in_phase = 0;
        }
        w.beats = now.beats;
        w.step = now.step;
        w.phase = now.phase;
    }
}

int HangWatch::blamed(bool stopped) const {
    int culprit = -1, victim = -1;
    bool all = true;
    for (int i = 0; i < int(ranks.size()); i++) {
        const Watched& w = ranks[size_t(i)];
        if (!page.ranks[i].joined) continue;
        const auto longest = [&](int other) { return other < 0 || w.silent > ranks[size_t(other)].silent; };
        const double most = limit(w, stopped);
        if (w.silent >= most && (stopped || !waits(i)) && longest(culprit)) culprit = i;
        if (std::min(w.silent, others_silent) < most + kCourtesy + page.news_delay) all = false;
        else if (longest(victim)) victim = i;
    }
    if (culprit >= 0) return culprit;
    return all ? victim : -1;
}
