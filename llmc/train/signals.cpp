#include "llmc/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <initializer_list>

#include "llmc/base/check.h"
#include "llmc/base/last_words.h"

static volatile std::sig_atomic_t save_flag = 0, stop_flag = 0;

// timeout(1) signals the process and then its group: two signals that are one request.
static constexpr int64_t kOneRequestMs = 500;
static std::atomic<int64_t> first_request = 0;      // milliseconds; 0: none yet
static_assert(std::atomic<int64_t>::is_always_lock_free);

static int64_t now_ms() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t(t.tv_sec) * 1000 + t.tv_nsec / 1000000 + 1;
}

// Runs on any thread, inside anything: no locks, no stdio.
static void end_now_or_soon() {
    static constexpr char kSoon[] =
        "stopping after this step, which is saved; once more to end at once, without saving\n";
    int64_t first = 0;
    const int64_t now = now_ms();
    if (first_request.compare_exchange_strong(first, now)) (void)!write(2, kSoon, sizeof kSoon - 1);
    else if (now - first > kOneRequestMs) ends_on_purpose(), _exit(kExitRestart);
}

static void on_signal(int signal) {
    const int kept = errno;
    if (signal != SIGUSR1) stop_flag = 1;
    save_flag = 1;
    if (signal == SIGTERM || signal == SIGINT) end_now_or_soon();
    errno = kept;
}

void catch_signals() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (int s : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) sigaction(s, &action, nullptr);
    for (int s : {SIGPIPE, SIGXFSZ}) signal(s, SIG_IGN);
}

Signals take_signals() {
    const bool stop = stop_flag != 0, save = save_flag != 0;
    if (save) save_flag = 0;    // one that comes in between is seen by the next call
    return {.save = save || stop, .stop = stop};
}

bool stop_asked() { return stop_flag != 0; }
