// Signals ask; the loop answers between two steps.
//
//     SIGUSR1            save and go on
//     SIGUSR2            save and exit 75
//     SIGTERM, SIGINT    save and exit 75; once more: exit 75 at once, without saving
//
// What would otherwise end the run, a reader of stdout that is gone (SIGPIPE) or a limit on the size of files
// (SIGXFSZ), is left to whoever writes.
#pragma once

struct Signals {
    bool save = false, stop = false;
    void operator|=(const Signals& s) { save |= s.save, stop |= s.stop; }
};

void catch_signals();
Signals take_signals();         // what was asked since the last call; `stop` stays
bool stop_asked();              // for long work that can end early
