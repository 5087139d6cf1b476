#include "llmc/base/guard/wait.h"

#include <immintrin.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "llmc/base/guard/signals.h"

inline namespace guard {

static constexpr double kLate = 120;            // seconds

Waiting::Waiting(const char* what, Awaits on, double patience) {
    RankProgress* const p = context.progress;
    if (!p || p->waits_for_ranks() || (on == Awaits::Own && p->wait.text[0])) return;
    rank = p;
    outer = p->wait;
    began = seconds_now();
    p->awaits = on;
    p->patience = patience;
    p->wait = what;
}

Waiting::~Waiting() {
    if (rank) {
        if (rank->awaits == Awaits::Ranks) waited_for_ranks += seconds_now() - began;
        rank->patience = 0;
        rank->wait = outer.text;
        rank->awaits = outer.text[0] ? Awaits::Own : Awaits::Ranks;
    }
    if (std::uncaught_exceptions() == 0) beat();
}

void waits_for_peer(const std::string& peer) {
    RankProgress* const p = context.progress;
    if (!p) return;
    const std::string now = p->wait.text, text = now.substr(0, now.find(" from ")) + " from " + peer;
    if (text.compare(0, sizeof p->wait.text - 1, now)) p->wait = text.c_str();
}

double start_patience() {
    return std::max(kLate, progress_page ? progress_page->hang_timeout.load() : 0);
}

void wait_for_the_end() {
    if (RankProgress* p = context.progress) p->wait = "finalize";
}

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

double between_looks(const Wait& w, int64_t looks) {
    static constexpr int kLook = 16;            // yields
    if (looks <= w.spins) {
        _mm_pause();
        return 0;
    }
    const bool naps = looks > w.spins + w.yields;
    if (naps || looks % kLook == 0) {
        if (in_wait) (*in_wait)();
        (void)stop_asked();     // receives signals where no thread does
    }
    if (!naps) {
        sched_yield();
        return 0;
    }
    if (w.beats) beat();
    const double left = w.until - seconds_now();
    return left > 0 ? std::min(w.nap, left) : -1;
}

bool wait_for_files(const Wait& w, pollfd* files, size_t count) {
    return wait_until(w, [=] { return poll(files, count, 0) > 0; },
                      [=](double nap) { poll(files, count, int(nap * 1000) + 1); });
}

void join(std::thread& thread, const char* what) {
    if (!thread.joinable()) return;
    const Waiting named(what, Awaits::Own);
    thread.join();
}

}  // namespace guard
