#include "llmc/train/signals.h"

#include <csignal>
#include <initializer_list>

static volatile std::sig_atomic_t save_flag = 0, stop_flag = 0;

static void on_signal(int signal) {
    if (signal != SIGUSR1) stop_flag = 1;
    save_flag = 1;
}

void catch_signals() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    for (int s : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT}) sigaction(s, &action, nullptr);
}

Signals take_signals() {
    const bool stop = stop_flag != 0, save = save_flag != 0;
    if (save) save_flag = 0;    // one that comes in between is seen by the next call
    return {.save = save || stop, .stop = stop};
}

bool stop_asked() { return stop_flag != 0; }
