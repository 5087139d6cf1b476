#include "llmc/base/guard/signals.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>

#include "llmc/base/check.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/base/host/start_thread.h"
#include "llmc/base/progress.h"

inline namespace guard {

enum class Program { Starting, Tool, Training };
static std::atomic<Program> program = Program::Starting;
static std::atomic<bool> save_asked = false, asked_to_stop = false, polled = false;

// timeout(1) signals the process and then its group: two signals, a single request.
static constexpr double kOneRequest = 0.5;      // seconds

sigset_t set_of(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int s : signals) sigaddset(&set, s);
    return set;
}
static sigset_t all_received() { return set_of({SIGUSR1, SIGUSR2, SIGTERM, SIGINT}); }

static void act_by_default(int signal) {
    const sigset_t one = set_of({signal});
    pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
    raise(signal);
    pthread_sigmask(SIG_BLOCK, &one, nullptr);      // the signal was ignored
}

[[noreturn]] static void end_now() {
    ends_on_purpose();
    _exit(kExitRestart);
}

static void end_now_or_soon() {
    static double first = 0;
    if (program == Program::Starting) {
        fputs("stopped before training began\n", stderr);
        end_now();
    } else if (first == 0) {
        first = seconds_now();
        fputs("stopping after this step, which is saved; once more to end at once, without saving\n", stderr);
    } else if (seconds_now() - first > kOneRequest) end_now();
}

static void answer(int signal) {
    if (program == Program::Tool) return act_by_default(signal);
    if (signal != SIGUSR1) asked_to_stop = true;
    save_asked = true;
    if (signal == SIGTERM || signal == SIGINT) end_now_or_soon();
}

static void receive() {
    const sigset_t all = all_received();
    for (int signal;;)
        if (sigwait(&all, &signal) == 0) answer(signal);
}

// Where no thread can be made: between two steps.
static void poll_signals() {
    const sigset_t all = all_received();
    const timespec at_once = {};
    for (int signal; polled && (signal = sigtimedwait(&all, nullptr, &at_once)) > 0;) answer(signal);
}

void hold_signals() {
    const sigset_t held = set_of({SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP});
    pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

void receive_signals() {
    static std::once_flag started;
    std::call_once(started, [] {
        const sigset_t all = all_received();
        pthread_sigmask(SIG_BLOCK, &all, nullptr);
        std::thread thread;
        polled = !start_thread(thread, receive).empty();
        if (!polled) thread.detach();
        const sigset_t hang_up = set_of({SIGHUP});
        pthread_sigmask(SIG_UNBLOCK, &hang_up, nullptr);
    });
}

void signals_as_usual() { program = Program::Tool; }

void end_with_reader() {
    signal(SIGPIPE, [](int) {
        ends_on_purpose();
        _exit(kExitDone);
    });
}

void catch_signals() {
    receive_signals();
    signal(SIGPIPE, SIG_IGN);
    program = Program::Training;
}

Signals take_signals() {
    poll_signals();
    const bool stop = asked_to_stop, save = save_asked.exchange(false);
    const bool regroup = own_generation && agent_page && agent_page->leaves >= own_generation;
    return {.save = save || stop, .stop = stop, .regroup = regroup};
}

bool stop_asked() {
    poll_signals();
    return asked_to_stop;
}

}  // namespace guard
