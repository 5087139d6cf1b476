#include "test/emulator/watch.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <utility>

#include "llmc/base/check.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace emulator {

// Leaves the handler for the host's stack, like longjmp. Code of a kernel holds no lock. The reported place
// is the innermost in the kernel: the signal may arrive inside a function called by the kernel.
static void too_long(int, siginfo_t*, void*) {
    const Thread* t = current;
    static thread_local uint64_t seen = 0;
    if (!t || std::exchange(seen, machine->launches) != machine->launches) return;
    void* frames[64];
    const int count = backtrace(frames, 64);
    Site site = t->site;
    for (int i = 0; i < count; i++)
        if (!place_of(frames[i]).starts_with("address")) {
            site = frames[i];
            break;
        }
    const std::string last = t->site ? fmt::format("; the thread's last meeting was {} at {}", t->waits_in,
                                                   place_of(t->site)) : "";
    fail_at(t, site,
            fmt::format("endless loop? The launch has run for {:.3g} s of CPU time{}", settings.timeout,
                                 last));
}

static timer_t make_timer() {
    struct sigaction action{};
    action.sa_sigaction = too_long;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGRTMIN + 3, &action, nullptr);
    struct sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGRTMIN + 3;
    event.sigev_notify_thread_id = int(syscall(SYS_gettid));
    timer_t timer;
    CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0, "timer_create failed");
    return timer;
}

// Ticks with every `timeout` of this thread's CPU time: two ticks within one launch are too many.
void watch_launch() {
    thread_local const timer_t timer = make_timer();
    thread_local double period = 0;
    if (period == settings.timeout) [[likely]] return;
    period = settings.timeout;
    struct itimerspec at{};
    at.it_value.tv_sec = time_t(period);
    at.it_value.tv_nsec = long((period - double(time_t(period))) * 1e9);
    at.it_interval = at.it_value;
    timer_settime(timer, 0, &at, nullptr);
}

}  // namespace emulator
